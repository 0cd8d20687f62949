//! MNIST and data sets in its format: 28 × 28 gray images in ten classes.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::idx::{Elements, Idx};
use crate::{Error, ErrorKind, InMemory};

/// Pixels per image.
const N_PIXELS: usize = 28 * 28;

/// Above every published data set in this format (EMNIST has 814,255 images), below what a machine cannot hold.
const MAX_ITEMS: u64 = 1_000_000;

/// MNIST, or a data set in its format such as Fashion-MNIST: training and test items.
///
/// # Example
/// ```
/// # #[cfg(feature = "gzip")] {
/// use fornax_data::Dataset;
/// use fornax_data::mnist::Mnist;
/// let digits = Mnist::digits();
/// assert_eq!((digits.train.len(), digits.test.len()), (8000, 2000));
/// println!("{}", digits.train.get(0)); // the digit, drawn in characters
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Mnist {
    /// The training items.
    pub train: InMemory<MnistItem>,
    /// The test items, which take no part in training.
    pub test: InMemory<MnistItem>,
}

/// An image and its class.
///
/// `Display` draws the image with two characters per pixel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MnistItem {
    /// 28 rows of 28 pixels from the top left, 0 background and 255 ink.
    pub image: [u8; N_PIXELS],
    /// The class, `0..10`.
    pub label: u8,
}

impl Mnist {
    /// Reads the four files from the folder `dir`.
    ///
    /// They are `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and
    /// `t10k-labels-idx1-ubyte`, each plain or with `.gz`; a plain one is taken first. Nothing is downloaded.
    ///
    /// # Errors
    /// - [`Missing`](ErrorKind::Missing): a file is not in the folder.
    /// - [`Shape`](ErrorKind::Shape): images are not bytes `[n, 28, 28]`, or labels not bytes `[n]`.
    /// - [`Count`](ErrorKind::Count): there are not as many labels as images.
    /// - [`Label`](ErrorKind::Label): a label is above 9.
    /// - Those of [`Idx::read`].
    ///
    /// # Example
    /// ```
    /// # #[cfg(feature = "gzip")] {
    /// use fornax_data::{Dataset, mnist::Mnist};
    /// let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/digits"); // where yours are
    /// let mnist = Mnist::load(folder)?;
    /// assert!(mnist.train.get(0).label < 10);
    /// # }
    /// # Ok::<(), fornax_data::Error>(())
    /// ```
    pub fn load(dir: impl AsRef<Path>) -> Result<Self, Error> {
        let load = |images, labels| load_pair(&find(dir.as_ref(), images)?, &find(dir.as_ref(), labels)?);
        Ok(Self {
            train: load("train-images-idx3-ubyte", "train-labels-idx1-ubyte")?,
            test: load("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")?,
        })
    }

    /// 10,000 digits of MNIST that come with this crate: 8,000 for training and 2,000 for tests.
    ///
    /// For examples and tests without a download. The test items are not those of MNIST, so results do not compare
    /// with published ones; `assets/digits/PROVENANCE.md` in this crate says where they come from. The 1.6 MB are
    /// part of a program only if it calls this function.
    ///
    /// # Example
    /// ```
    /// use fornax_data::{Dataset, mnist::Mnist};
    /// assert_eq!(Mnist::digits().train.get(0).label, 2);
    /// ```
    #[cfg(feature = "gzip")]
    pub fn digits() -> Self {
        macro_rules! asset {
            ($name:literal) => {
                &include_bytes!(concat!("../assets/digits/", $name, ".gz"))[..]
            };
        }
        let read = |images: &[u8], labels: &[u8]| -> Result<_, Error> {
            let max_bytes = MAX_ITEMS * N_PIXELS as u64;
            pair_up(Idx::read(images, max_bytes)?, Idx::read(labels, max_bytes)?).map_err(|(_, error)| error)
        };
        let expect = "the files are part of the crate, and a test reads them";
        Self {
            train: read(asset!("train-images-idx3-ubyte"), asset!("train-labels-idx1-ubyte")).expect(expect),
            test: read(asset!("t10k-images-idx3-ubyte"), asset!("t10k-labels-idx1-ubyte")).expect(expect),
        }
    }
}

impl fmt::Debug for MnistItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MnistItem").field("label", &self.label).finish_non_exhaustive()
    }
}

impl fmt::Display for MnistItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHADES: &[u8] = b" .:-=+*#%@";
        writeln!(f, "label {}", self.label)?;
        for row in self.image.chunks(28) {
            let shade = |&pixel: &u8| char::from(SHADES[usize::from(pixel) * SHADES.len() / 256]);
            let line: String = row.iter().flat_map(|pixel| [shade(pixel); 2]).collect();
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn find(dir: &Path, name: &str) -> Result<PathBuf, Error> {
    let candidates = [dir.join(name), dir.join(format!("{name}.gz"))];
    candidates.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Error::new(ErrorKind::Missing, format!("mnist: neither {name} nor {name}.gz is here")).with_path(dir)
    })
}

fn load_pair(images: &Path, labels: &Path) -> Result<InMemory<MnistItem>, Error> {
    // 1,000,000 labels take 1 MB; one limit for both keeps the message about a wrong file the useful one.
    let max_bytes = MAX_ITEMS * N_PIXELS as u64;
    pair_up(Idx::open(images, max_bytes)?, Idx::open(labels, max_bytes)?).map_err(|(file, error)| match file {
        Blame::Images => error.with_path(images),
        Blame::Labels => error.with_path(labels),
    })
}

/// The file an error is about.
enum Blame {
    Images,
    Labels,
}

fn pair_up(images: Idx, labels: Idx) -> Result<InMemory<MnistItem>, (Blame, Error)> {
    let shape_error = |what: &str, dims: &[usize]| {
        Error::new(ErrorKind::Shape, format!("mnist: expected {what}, found dims {dims:?} or another type"))
    };
    let (dims, elements) = images.into_parts();
    let (&[n_images, 28, 28], Elements::U8(pixels)) = (&dims[..], elements) else {
        return Err((Blame::Images, shape_error("images of bytes [n, 28, 28]", &dims)));
    };
    let (dims, elements) = labels.into_parts();
    let (&[n_labels], Elements::U8(labels)) = (&dims[..], elements) else {
        return Err((Blame::Labels, shape_error("labels of bytes [n]", &dims)));
    };
    if n_images != n_labels {
        let message = format!("mnist: {n_labels} labels for {n_images} images");
        return Err((Blame::Labels, Error::new(ErrorKind::Count, message)));
    }
    if let Some(index) = labels.iter().position(|&label| label > 9) {
        let message = format!("mnist: label {} of item {index} is not in 0..10", labels[index]);
        // The labels begin after a header of eight bytes.
        return Err((Blame::Labels, Error::new(ErrorKind::Label, message).with_offset(8 + index as u64)));
    }
    let images = pixels.as_chunks().0.iter();
    Ok(images.zip(labels).map(|(&image, label)| MnistItem { image, label }).collect())
}
