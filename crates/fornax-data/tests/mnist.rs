//! The bundled digits, and folders that hold something else than MNIST.

use std::fs;
use std::path::{Path, PathBuf};

use fornax_data::idx::{Elements, Idx};
use fornax_data::mnist::Mnist;
use fornax_data::{Dataset, ErrorKind};

/// A fresh folder with the four files, two images and labels each.
fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    for set in ["train", "t10k"] {
        let pixels = (0..2 * 784).map(|i| (i % 251) as u8).collect();
        put(&dir, &format!("{set}-images-idx3-ubyte"), &Idx::new([2, 28, 28], Elements::U8(pixels)));
        put(&dir, &format!("{set}-labels-idx1-ubyte"), &Idx::new([2], Elements::U8(vec![9, 0])));
    }
    dir
}

fn put(dir: &Path, name: &str, array: &Idx) {
    array.write(fs::File::create(dir.join(name)).unwrap()).unwrap();
}

#[track_caller]
fn check_error(dir: &Path, file: &str, kind: ErrorKind, message: &str) {
    let error = Mnist::load(dir).unwrap_err();
    assert_eq!((error.kind(), error.path()), (kind, Some(&*dir.join(file))), "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
fn plain_files_load() {
    let mnist = Mnist::load(folder("plain")).unwrap();
    assert_eq!((mnist.train.len(), mnist.test.len()), (2, 2));
    let item = mnist.test.get(1);
    assert_eq!((item.label, item.image[0], item.image[783]), (0, (784 % 251) as u8, (1567 % 251) as u8));
    assert_eq!(format!("{item:?}"), "MnistItem { label: 0, .. }");
}

#[test]
fn wrong_folders_are_errors() {
    let dir = folder("missing");
    fs::remove_file(dir.join("t10k-labels-idx1-ubyte")).unwrap();
    check_error(&dir, "", ErrorKind::Missing, "neither t10k-labels-idx1-ubyte nor t10k-labels-idx1-ubyte.gz is here");

    let dir = folder("shape");
    put(&dir, "train-images-idx3-ubyte", &Idx::new([2, 32, 32], Elements::U8(vec![0; 2048])));
    check_error(&dir, "train-images-idx3-ubyte", ErrorKind::Shape, "found dims [2, 32, 32]");

    let dir = folder("type");
    put(&dir, "train-labels-idx1-ubyte", &Idx::new([2], Elements::I32(vec![1, 2])));
    check_error(&dir, "train-labels-idx1-ubyte", ErrorKind::Shape, "labels of bytes [n]");

    let dir = folder("count");
    put(&dir, "t10k-labels-idx1-ubyte", &Idx::new([3], Elements::U8(vec![1, 2, 3])));
    check_error(&dir, "t10k-labels-idx1-ubyte", ErrorKind::Count, "3 labels for 2 images");

    let dir = folder("label");
    put(&dir, "train-labels-idx1-ubyte", &Idx::new([2], Elements::U8(vec![3, 10])));
    check_error(&dir, "train-labels-idx1-ubyte", ErrorKind::Label, "label 10 of item 1 is not in 0..10 (at byte 9)");

    let dir = folder("swapped");
    fs::copy(dir.join("train-labels-idx1-ubyte"), dir.join("train-images-idx3-ubyte")).unwrap();
    check_error(&dir, "train-images-idx3-ubyte", ErrorKind::Shape, "images of bytes [n, 28, 28]");

    let dir = folder("html");
    fs::write(dir.join("train-images-idx3-ubyte"), "<html>not found</html>").unwrap();
    check_error(&dir, "train-images-idx3-ubyte", ErrorKind::BadMagic, "two zero bytes");
}

#[cfg(feature = "gzip")]
#[test]
fn bundled_digits_are_what_the_provenance_says() {
    let mnist = Mnist::digits();
    let counts = |items: &[fornax_data::mnist::MnistItem]| {
        let mut counts = [0; 10];
        items.iter().for_each(|item| counts[usize::from(item.label)] += 1);
        counts
    };
    assert_eq!(counts(mnist.train.as_slice()), [801, 902, 793, 826, 784, 690, 811, 856, 755, 782]);
    assert_eq!(counts(mnist.test.as_slice()), [200, 225, 198, 206, 196, 173, 203, 214, 189, 196]);

    // MNIST is known by its mean 0.1307 and standard deviation 0.3081; 10,000 of its images come close.
    let pixels = mnist.train.as_slice().iter().flat_map(|item| item.image).map(|pixel| f64::from(pixel) / 255.0);
    let (n, sum, squares) = pixels.fold((0.0, 0.0, 0.0), |(n, sum, squares), x| (n + 1.0, sum + x, squares + x * x));
    let mean = sum / n;
    let std = (squares / n - mean * mean).sqrt();
    assert!((mean - 0.1307).abs() < 2e-3 && (std - 0.3081).abs() < 2e-3, "mean {mean}, std {std}");

    let all = mnist.train.concat(mnist.test);
    let mut images: Vec<_> = (0..all.len()).map(|index| all.get(index).image).collect();
    images.sort_unstable();
    images.dedup();
    assert_eq!(images.len(), 10_000);
}

#[cfg(feature = "gzip")]
#[test]
fn bundled_digits_load_from_their_folder_too() {
    let loaded = Mnist::load(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/digits")).unwrap();
    assert!(loaded.train.as_slice() == Mnist::digits().train.as_slice());
    assert!(loaded.test.as_slice() == Mnist::digits().test.as_slice());
}

/// The nearest of the class means is right for about 82 % of MNIST: labels belong to their images.
#[cfg(feature = "gzip")]
#[test]
fn nearest_mean_recognizes_the_bundled_digits() {
    let mnist = Mnist::digits();
    let mut means = vec![[0.0_f32; 784]; 10];
    let mut counts = [0.0_f32; 10];
    for item in mnist.train.as_slice() {
        let label = usize::from(item.label);
        counts[label] += 1.0;
        means[label].iter_mut().zip(item.image).for_each(|(mean, pixel)| *mean += f32::from(pixel));
    }
    means.iter_mut().zip(counts).for_each(|(mean, n)| mean.iter_mut().for_each(|x| *x /= n));

    let distance = |mean: &[f32; 784], image: &[u8; 784]| -> f32 {
        mean.iter().zip(image).map(|(m, &pixel)| (m - f32::from(pixel)).powi(2)).sum()
    };
    let n_right = mnist.test.as_slice().iter().filter(|item| {
        let nearest =
            (0..10).min_by(|&a, &b| distance(&means[a], &item.image).total_cmp(&distance(&means[b], &item.image)));
        nearest == Some(usize::from(item.label))
    });
    let accuracy = n_right.count() as f32 / 2000.0;
    assert!((0.78..0.88).contains(&accuracy), "accuracy {accuracy}");
}
