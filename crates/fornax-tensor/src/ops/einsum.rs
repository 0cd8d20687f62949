//! Einstein summation, and the products that are special cases of it.

use crate::dims::{IntoDim, resolve_dim};
use crate::ops::{Arg, Args};
use crate::primitive::{permute, reduce, reshape};
use crate::{Error, Result, Shape, Tensor};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fornax_ir::ReduceOp;
use fornax_macros::ops;

#[ops(group = "linalg", records = RECORDS)]
impl Tensor {
    /// Einstein summation: `Tensor::einsum("bij,bjk->bik", &[&a, &b])`. A letter that stands twice in an operand takes
    /// its diagonal, letters missing behind `->` are summed, `...` stands for broadcast dims. Without `->` the result
    /// has the letters that stand once, in alphabetical order.
    ///
    /// Several operands are contracted pair by pair, the pair with the smallest result first.
    #[op(call = call_einsum)]
    pub fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
        let plan = Equation::parse(equation, operands)?;
        plan.contract(operands)
    }

    /// Contraction over dims `dims_self` of this tensor with `dims_other` of the other, pair by pair; the other dims
    /// follow in order.
    #[op(call = call_tensordot)]
    pub fn tensordot(&self, other: &Tensor, dims_self: &[i64], dims_other: &[i64]) -> Result<Tensor> {
        if dims_self.len() != dims_other.len() {
            return Err(Error::argument("tensordot", format!("{dims_self:?} and {dims_other:?} do not pair up")));
        }
        let axes = |x: &Tensor, dims: &[i64]| -> Result<Vec<usize>> {
            dims.iter().map(|&dim| resolve_dim("tensordot", dim, x.shape())).collect()
        };
        let (a_axes, b_axes) = (axes(self, dims_self)?, axes(other, dims_other)?);
        // A size of 1 stretches to the other's: what it meets is summed first.
        let (mut lhs, mut rhs) = (self.clone(), other.clone());
        for (&a, &b) in a_axes.iter().zip(&b_axes) {
            if self.shape()[a] == 1 && other.shape()[b] != 1 {
                rhs = reduce(ReduceOp::Sum, &rhs, &[b])?;
            } else if other.shape()[b] == 1 && self.shape()[a] != 1 {
                lhs = reduce(ReduceOp::Sum, &lhs, &[a])?;
            } else if self.shape()[a] != other.shape()[b] {
                let message = format!("dim {a} of {} and dim {b} of {} differ", self.shape(), other.shape());
                return Err(Error::shape("tensordot", message));
            }
        }
        let free =
            |x: &Tensor, axes: &[usize]| -> Vec<usize> { (0..x.rank()).filter(|dim| !axes.contains(dim)).collect() };
        let (this, other) = (&lhs, &rhs);
        let (a_free, b_free) = (free(this, &a_axes), free(other, &b_axes));
        let sizes = |x: &Tensor, axes: &[usize]| -> Vec<usize> { axes.iter().map(|&dim| x.shape()[dim]).collect() };
        let inner: usize = sizes(this, &a_axes).iter().product();
        let (a_sizes, b_sizes) = (sizes(this, &a_free), sizes(other, &b_free));
        let a = permute(this, &[a_free, a_axes].concat())?.try_reshape([a_sizes.iter().product(), inner])?;
        let b = permute(other, &[b_axes, b_free].concat())?.try_reshape([inner, b_sizes.iter().product()])?;
        a.try_matmul(&b)?.try_reshape([a_sizes, b_sizes].concat())
    }

    /// `Σ self · other` of two vectors of one length.
    #[op(torch = ["dot", "vdot"], call = call_dot)]
    pub fn dot(&self, other: &Tensor) -> Result<Tensor> {
        if self.rank() != 1 || self.shape() != other.shape() {
            let message = format!("needs vectors of one length, got {} and {}", self.shape(), other.shape());
            return Err(Error::shape("dot", message));
        }
        self.try_matmul(other)
    }

    /// Product of two matrices.
    #[op(rename(other = "mat2"))]
    pub fn mm(&self, other: &Tensor) -> Result<Tensor> {
        ranks("mm", &[(self, 2), (other, 2)])?;
        self.try_matmul(other).map_err(|error| error.named("mm"))
    }

    /// Products of two batches of matrices, `[b, m, k]` and `[b, k, n]`.
    #[op(rename(other = "mat2"))]
    pub fn bmm(&self, other: &Tensor) -> Result<Tensor> {
        ranks("bmm", &[(self, 3), (other, 3)])?;
        if self.shape()[0] != other.shape()[0] {
            let message = format!("batches differ: {} and {}", self.shape(), other.shape());
            return Err(Error::shape("bmm", message));
        }
        self.try_matmul(other).map_err(|error| error.named("bmm"))
    }

    /// Product of a matrix and a vector.
    #[op]
    pub fn mv(&self, vec: &Tensor) -> Result<Tensor> {
        ranks("mv", &[(self, 2), (vec, 1)])?;
        self.try_matmul(vec).map_err(|error| error.named("mv"))
    }

    /// All products of an element of one vector and one of the other.
    #[op(torch = ["outer", "ger"], rename(other = "vec2"), autocast = low)]
    pub fn outer(&self, other: &Tensor) -> Result<Tensor> {
        ranks("outer", &[(self, 1), (other, 1)])?;
        self.try_unsqueeze(1)?.try_mul(other)
    }

    /// Sums of products over the last dims: `[…, n]` and `[---, n]` give `[…, ---]`.
    #[op(autocast = low)]
    pub fn inner(&self, other: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 || other.rank() == 0 {
            return self.try_mul(other);
        }
        self.try_tensordot(other, &[-1], &[-1]).map_err(|error| error.named("inner"))
    }

    /// `beta · self + alpha · (mat1 · mat2)`. With `beta = 0`, NaN in this tensor counts for nothing.
    #[op]
    pub fn addmm(&self, mat1: &Tensor, mat2: &Tensor, beta: f64, alpha: f64) -> Result<Tensor> {
        combine(self, mat1.try_mm(mat2)?, beta, alpha)
    }

    /// `beta · self + alpha · (mat · vec)`.
    #[op]
    pub fn addmv(&self, mat: &Tensor, vec: &Tensor, beta: f64, alpha: f64) -> Result<Tensor> {
        combine(self, mat.try_mv(vec)?, beta, alpha)
    }

    /// `beta · self + alpha · Σ batch1ᵢ · batch2ᵢ`.
    #[op]
    pub fn addbmm(&self, batch1: &Tensor, batch2: &Tensor, beta: f64, alpha: f64) -> Result<Tensor> {
        combine(self, batch1.try_bmm(batch2)?.try_sum(0)?, beta, alpha)
    }

    /// `beta · self + alpha · batch1ᵢ · batch2ᵢ`, batch by batch.
    #[op]
    pub fn baddbmm(&self, batch1: &Tensor, batch2: &Tensor, beta: f64, alpha: f64) -> Result<Tensor> {
        combine(self, batch1.try_bmm(batch2)?, beta, alpha)
    }

    /// `beta · self + alpha · vec1 ⊗ vec2`.
    #[op]
    pub fn addr(&self, vec1: &Tensor, vec2: &Tensor, beta: f64, alpha: f64) -> Result<Tensor> {
        combine(self, vec1.try_outer(vec2)?, beta, alpha)
    }

    /// Product of a chain of matrices, in the order that costs the fewest multiplications. The first and last may be
    /// vectors.
    #[op(torch = ["linalg.multi_dot", "chain_matmul"], call = call_multi_dot)]
    pub fn multi_dot(tensors: &[&Tensor]) -> Result<Tensor> {
        let [first, .., last] = tensors else {
            return Err(Error::argument("multi_dot", "needs at least two tensors"));
        };
        let (row, column) = (first.rank() == 1, last.rank() == 1);
        let mut chain: Vec<Tensor> = tensors.iter().map(|&tensor| tensor.clone()).collect();
        if row {
            chain[0] = first.try_unsqueeze(0)?;
        }
        if column {
            let end = chain.len() - 1;
            chain[end] = last.try_unsqueeze(1)?;
        }
        for pair in chain.windows(2) {
            ranks("multi_dot", &[(&pair[0], 2), (&pair[1], 2)])?;
            if pair[0].shape()[1] != pair[1].shape()[0] {
                let message = format!("inner sizes differ: {} and {}", pair[0].shape(), pair[1].shape());
                return Err(Error::shape("multi_dot", message));
            }
        }
        let splits = chain_order(&chain);
        let mut product = chain_product(&chain, &splits, 0, chain.len() - 1)?;
        if column {
            product = product.try_squeeze(-1)?;
        }
        if row { product.try_squeeze(0) } else { Ok(product) }
    }

    /// Cross product along `dim`, of size 3; the others broadcast.
    #[op(torch = ["linalg.cross", "cross"], with(dim = i64), call = call_cross)]
    pub fn cross(&self, other: &Tensor, dim: impl IntoDim) -> Result<Tensor> {
        let shape = fornax_ir::broadcast_shapes("cross", self.shape(), other.shape())?;
        let (a, b) = (self.try_expand(&shape)?, other.try_expand(&shape)?);
        let dim = resolve_dim("cross", dim.into_dim(), &shape)?;
        if shape.get(dim) != Some(&3) {
            return Err(Error::shape("cross", format!("dim {dim} of {shape} is not of size 3")));
        }
        // Components 1, 2, 0 and 2, 0, 1.
        let turned = |x: &Tensor, by: i64| {
            let by = by as usize;
            Tensor::try_cat(&[&x.try_narrow(dim, by as i64, 3 - by)?, &x.try_narrow(dim, 0, by)?], dim)
        };
        turned(&a, 1)?.try_mul(turned(&b, 2)?)?.try_sub(turned(&a, 2)?.try_mul(turned(&b, 1)?)?)
    }

    /// `Σ self · other` along `dim`; the others broadcast.
    #[op(torch = ["linalg.vecdot"], with(dim = i64), rename(self = "x", other = "y"))]
    pub fn vecdot(&self, other: &Tensor, dim: impl IntoDim) -> Result<Tensor> {
        self.try_mul(other)?.try_sum(dim.into_dim()).map_err(|error| error.named("vecdot"))
    }

    /// Powers 0 to `n` − 1 (the size, if not given) of each element, as a new last dim.
    #[op(torch = ["linalg.vander"], rename(self = "x", n = "N"))]
    pub fn vander(&self, n: Option<usize>) -> Result<Tensor> {
        if self.rank() == 0 {
            return self.try_reshape([1])?.try_vander(n);
        }
        let size = self.shape()[self.rank() - 1];
        let n = n.unwrap_or(size);
        let column = self.try_unsqueeze(-1)?;
        let mut powers = vec![column.try_ones_like_as(self)?];
        for _ in 1..n {
            let next = powers[powers.len() - 1].try_mul(&column)?;
            powers.push(next);
        }
        if n == 0 {
            return column.try_narrow(-1, 0, 0);
        }
        Tensor::try_cat(&powers.iter().collect::<Vec<_>>(), -1)
    }
}

impl Tensor {
    fn try_ones_like_as(&self, like: &Tensor) -> Result<Tensor> {
        self.ones_like().try_to_dtype(like.dtype())
    }
}

/// Operands and result as lists of letters, by number; `...` is spelled out.
struct Equation {
    operands: Vec<Vec<usize>>,
    result: Vec<usize>,
    /// Size of each letter.
    sizes: BTreeMap<usize, usize>,
}

/// Letters from here on stand for the dims of an ellipsis, counted from the last.
const ELLIPSIS: usize = 1000;

impl Equation {
    fn parse(equation: &str, operands: &[&Tensor]) -> Result<Equation> {
        let bad = |why: String| Error::argument("einsum", format!("{why} in \"{equation}\""));
        let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text.as_str(), None),
        };
        let terms: Vec<&str> = left.split(',').collect();
        if terms.len() != operands.len() {
            return Err(bad(format!("{} terms for {} operands", terms.len(), operands.len())));
        }
        let mut parsed = Equation { operands: Vec::new(), result: Vec::new(), sizes: BTreeMap::new() };
        let mut widest = 0;
        for (term, operand) in terms.iter().zip(operands) {
            let named = term.replace("...", "").chars().count();
            let hidden = if term.contains("...") {
                operand.rank().checked_sub(named)
            } else {
                (operand.rank() == named).then_some(0)
            };
            let hidden = hidden.ok_or_else(|| bad(format!("term \"{term}\" does not fit {}", operand.shape())))?;
            widest = widest.max(hidden);
            let letters = letters(term, hidden).map_err(bad)?;
            for (&letter, &size) in letters.iter().zip(operand.shape().iter()) {
                let known = parsed.sizes.entry(letter).or_insert(size);
                if *known != size && *known != 1 && size != 1 {
                    let name = letter_name(letter);
                    return Err(Error::shape("einsum", format!("`{name}` is {known} and {size} in \"{equation}\"")));
                }
                *known = if *known == 1 { size } else { *known };
            }
            parsed.operands.push(letters);
        }
        parsed.result = match right {
            Some(right) => letters(right, widest).map_err(bad)?,
            None => {
                let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
                parsed.operands.iter().flatten().for_each(|&letter| *counts.entry(letter).or_default() += 1);
                let once = counts.iter().filter(|&(&letter, &count)| letter < ELLIPSIS && count == 1);
                (0..widest).rev().map(|i| ELLIPSIS + i).chain(once.map(|(&letter, _)| letter)).collect()
            }
        };
        for (i, letter) in parsed.result.iter().enumerate() {
            if !parsed.sizes.contains_key(letter) || parsed.result[..i].contains(letter) {
                let why = format!("`{}` of the result stands twice or in no operand", letter_name(*letter));
                return Err(bad(why));
            }
        }
        Ok(parsed)
    }

    #[track_caller]
    fn contract(mut self, operands: &[&Tensor]) -> Result<Tensor> {
        let mut tensors = Vec::new();
        for (letters, &operand) in self.operands.iter_mut().zip(operands) {
            tensors.push(diagonals(operand, letters, &self.sizes)?);
        }
        let mut terms = self.operands;
        while terms.len() > 1 {
            let (i, j) = cheapest_pair(&terms, &self.sizes, &self.result);
            let (b, b_letters) = (tensors.remove(j), terms.remove(j));
            let (a, a_letters) = (tensors.remove(i), terms.remove(i));
            let kept =
                |letter: &usize| self.result.contains(letter) || terms.iter().any(|letters| letters.contains(letter));
            let (product, letters) = contract_pair(&a, &a_letters, &b, &b_letters, &kept)?;
            tensors.push(product);
            terms.push(letters);
        }
        let (mut tensor, mut letters) = (tensors.swap_remove(0), terms.swap_remove(0));
        let summed: Vec<usize> = (0..letters.len()).filter(|&dim| !self.result.contains(&letters[dim])).collect();
        if !summed.is_empty() {
            tensor = sum_out(&tensor, &summed)?;
            letters.retain(|letter| self.result.contains(letter));
        }
        let perm: Vec<usize> = self
            .result
            .iter()
            .map(|letter| letters.iter().position(|other| other == letter).expect("every letter of the result is left"))
            .collect();
        permute(&tensor, &perm)
    }
}

fn letter_name(letter: usize) -> String {
    match u32::try_from(letter).ok().and_then(char::from_u32) {
        Some(name) if letter < ELLIPSIS => name.into(),
        _ => String::from("..."),
    }
}

/// The letters of a term, `...` as `hidden` dims.
fn letters(term: &str, hidden: usize) -> core::result::Result<Vec<usize>, String> {
    let mut found = Vec::new();
    let mut rest = term;
    let mut seen = false;
    while let Some(next) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("...") {
            if core::mem::replace(&mut seen, true) {
                return Err(String::from("more than one `...`"));
            }
            found.extend((0..hidden).rev().map(|i| ELLIPSIS + i));
            rest = after;
        } else if next.is_ascii_alphabetic() {
            found.push(next as usize);
            rest = &rest[1..];
        } else {
            return Err(format!("`{next}` is no letter"));
        }
    }
    Ok(found)
}

/// An operand whose letters are all different: diagonals of repeated ones, sizes of 1 stretched.
#[track_caller]
fn diagonals(x: &Tensor, letters: &mut Vec<usize>, sizes: &BTreeMap<usize, usize>) -> Result<Tensor> {
    let full: Shape = letters.iter().map(|letter| sizes[letter]).collect();
    let mut x = x.try_expand(&full)?;
    let mut i = 0;
    while i < letters.len() {
        while let Some(j) = (i + 1..letters.len()).find(|&j| letters[j] == letters[i]) {
            // The positions where both dims agree, then a sum in which nothing else is left.
            let n = x.shape()[i];
            let mut moved: Vec<usize> = (0..x.rank()).filter(|&dim| dim != i && dim != j).collect();
            moved.extend([i, j]);
            let flat_shape: Vec<usize> =
                moved[..moved.len() - 2].iter().map(|&dim| x.shape()[dim]).chain([n * n]).collect();
            let flat = permute(&x, &moved)?.try_reshape(flat_shape)?;
            let last = flat.rank() - 1;
            let diagonal = flat.try_i({
                let mut index = vec![crate::Index::from(..); last];
                index.push(crate::step(.., n as i64 + 1));
                index
            })?;
            let mut perm: Vec<usize> = (0..last).collect();
            perm.insert(i, last);
            x = permute(&diagonal, &perm)?;
            letters.remove(j);
        }
        i += 1;
    }
    Ok(x)
}

/// The pair whose product is smallest.
fn cheapest_pair(terms: &[Vec<usize>], sizes: &BTreeMap<usize, usize>, result: &[usize]) -> (usize, usize) {
    let mut best = ((0, 1), f64::INFINITY);
    for i in 0..terms.len() {
        for j in i + 1..terms.len() {
            let kept = |letter: &&usize| {
                result.contains(letter)
                    || terms.iter().enumerate().any(|(k, term)| k != i && k != j && term.contains(letter))
            };
            let size = |letters: &[usize]| -> f64 { letters.iter().map(|letter| sizes[letter] as f64).product() };
            let mut left: Vec<usize> = terms[i].iter().chain(&terms[j]).filter(kept).copied().collect();
            left.sort_unstable();
            left.dedup();
            // What the product adds to memory: its own size less those of the operands it replaces.
            let cost = size(&left) - size(&terms[i]) - size(&terms[j]);
            if cost < best.1 {
                best = ((i, j), cost);
            }
        }
    }
    best.0
}

/// One batched matrix product of two terms.
#[track_caller]
fn contract_pair(
    a: &Tensor,
    a_letters: &[usize],
    b: &Tensor,
    b_letters: &[usize],
    kept: &dyn Fn(&usize) -> bool,
) -> Result<(Tensor, Vec<usize>)> {
    // Letters of one operand that nobody needs are summed first.
    let prepare = |x: &Tensor, letters: &[usize], other: &[usize]| -> Result<(Tensor, Vec<usize>)> {
        let alone: Vec<usize> =
            (0..letters.len()).filter(|&dim| !other.contains(&letters[dim]) && !kept(&letters[dim])).collect();
        let left: Vec<usize> = (0..letters.len()).filter(|dim| !alone.contains(dim)).map(|dim| letters[dim]).collect();
        Ok((if alone.is_empty() { x.clone() } else { sum_out(x, &alone)? }, left))
    };
    let (a, a_letters) = prepare(a, a_letters, b_letters)?;
    let (b, b_letters) = prepare(b, b_letters, &a_letters)?;
    let shared = |letter: &&usize| b_letters.contains(letter);
    let batch: Vec<usize> = a_letters.iter().filter(shared).filter(|&letter| kept(letter)).copied().collect();
    let inner: Vec<usize> = a_letters.iter().filter(shared).filter(|&letter| !kept(letter)).copied().collect();
    let rows: Vec<usize> = a_letters.iter().filter(|letter| !shared(letter)).copied().collect();
    let columns: Vec<usize> = b_letters.iter().filter(|letter| !a_letters.contains(letter)).copied().collect();
    let arrange = |x: &Tensor, letters: &[usize], order: [&[usize]; 3]| -> Result<Tensor> {
        let perm: Vec<usize> = order
            .iter()
            .flat_map(|group| group.iter())
            .map(|letter| letters.iter().position(|other| other == letter).expect("the groups share out the letters"))
            .collect();
        let size = |group: &[usize]| -> usize {
            group
                .iter()
                .map(|letter| x.shape()[letters.iter().position(|other| other == letter).unwrap_or(0)])
                .product()
        };
        permute(x, &perm)?.try_reshape(order.map(size))
    };
    let size_in = |x: &Tensor, letters: &[usize], letter: &usize| {
        x.shape()[letters.iter().position(|other| other == letter).expect("the letter is in this term")]
    };
    let shape: Shape = batch
        .iter()
        .chain(&rows)
        .map(|letter| size_in(&a, &a_letters, letter))
        .chain(columns.iter().map(|letter| size_in(&b, &b_letters, letter)))
        .collect();
    let letters: Vec<usize> = [batch.clone(), rows.clone(), columns.clone()].concat();
    let product = if inner.is_empty() && rows.is_empty() && columns.is_empty() {
        arrange(&a, &a_letters, [&batch, &[], &[]])?.try_mul(arrange(&b, &b_letters, [&batch, &[], &[]])?)?
    } else {
        arrange(&a, &a_letters, [&batch, &rows, &inner])?.try_matmul(&arrange(
            &b,
            &b_letters,
            [&batch, &inner, &columns],
        )?)?
    };
    Ok((reshape(&product, &shape)?, letters))
}

#[track_caller]
fn sum_out(x: &Tensor, dims: &[usize]) -> Result<Tensor> {
    let kept: Shape = (0..x.rank()).filter(|dim| !dims.contains(dim)).map(|dim| x.shape()[dim]).collect();
    reshape(&reduce(ReduceOp::Sum, x, dims)?, &kept)
}

fn ranks(op: &str, expected: &[(&Tensor, usize)]) -> Result<()> {
    if expected.iter().all(|(tensor, rank)| tensor.rank() == *rank) {
        return Ok(());
    }
    let shapes: Vec<String> =
        expected.iter().map(|(tensor, rank)| format!("{} (rank {rank})", tensor.shape())).collect();
    Err(Error::shape(op, format!("ranks do not fit: got {}", shapes.join(", "))))
}

/// `beta · base + alpha · product`.
#[track_caller]
fn combine(base: &Tensor, product: Tensor, beta: f64, alpha: f64) -> Result<Tensor> {
    let scaled = |x: Tensor, factor: f64| -> Result<Tensor> {
        if factor == 1.0 {
            Ok(x)
        } else if x.dtype().is_float() {
            x.try_mul(factor)
        } else if x.dtype() == crate::DType::Bool {
            // A factor of a truth value is one, too.
            if factor == 0.0 { Ok(x.zeros_like()) } else { Ok(x) }
        } else {
            x.try_mul(factor as i64)
        }
    };
    let product = scaled(product, alpha)?;
    let base = base.try_expand(product.shape())?;
    if beta == 0.0 { Ok(product) } else { scaled(base, beta)?.try_add(&product) }
}

/// Where to split each run of a chain, by dynamic programming over the number of multiplications.
///
/// Cormen, Leiserson, Rivest, Stein, *Introduction to Algorithms*, section 14.2.
fn chain_order(chain: &[Tensor]) -> Vec<Vec<usize>> {
    let n = chain.len();
    let size = |i: usize| if i < n { chain[i].shape()[0] } else { chain[n - 1].shape()[1] } as f64;
    let mut cost = vec![vec![0.0; n]; n];
    let mut splits = vec![vec![0; n]; n];
    for length in 1..n {
        for i in 0..n - length {
            let j = i + length;
            cost[i][j] = f64::INFINITY;
            for k in i..j {
                let candidate: f64 = cost[i][k] + cost[k + 1][j] + size(i) * size(k + 1) * size(j + 1);
                if candidate < cost[i][j] {
                    cost[i][j] = candidate;
                    splits[i][j] = k;
                }
            }
        }
    }
    splits
}

#[track_caller]
fn chain_product(chain: &[Tensor], splits: &[Vec<usize>], i: usize, j: usize) -> Result<Tensor> {
    if i == j {
        return Ok(chain[i].clone());
    }
    let k = splits[i][j];
    chain_product(chain, splits, i, k)?.try_matmul(&chain_product(chain, splits, k + 1, j)?)
}

type Called = Result<Vec<Tensor>>;

fn call_einsum(args: &Args) -> Called {
    let operands = args.get::<Vec<Tensor>>("operands")?;
    let operands: Vec<&Tensor> = operands.iter().collect();
    Ok(vec![Tensor::try_einsum(&args.get::<String>("equation")?, &operands)?])
}

/// `dims` is a number (so many last dims with as many first ones) or two lists.
fn call_tensordot(args: &Args) -> Called {
    let (a, b) = (args.get::<Tensor>("a")?, args.get::<Tensor>("b")?);
    let (a_dims, b_dims): (Vec<i64>, Vec<i64>) = match args.get::<Arg>("dims")? {
        Arg::Int(n) => ((a.rank() as i64 - n..a.rank() as i64).collect(), (0..n).collect()),
        _ => {
            let lists = args.get::<Vec<Vec<i64>>>("dims")?;
            match &lists[..] {
                [a_dims, b_dims] => (a_dims.clone(), b_dims.clone()),
                _ => return Err(Error::argument("tensordot", "`dims` is a number or two lists")),
            }
        }
    };
    Ok(vec![a.try_tensordot(&b, &a_dims, &b_dims)?])
}

fn call_dot(args: &Args) -> Called {
    let other = if args.has("tensor") { args.get::<Tensor>("tensor")? } else { args.get::<Tensor>("other")? };
    Ok(vec![args.get::<Tensor>("input")?.try_dot(&other)?])
}

fn call_multi_dot(args: &Args) -> Called {
    let tensors = args.get::<Vec<Tensor>>("tensors")?;
    Ok(vec![Tensor::try_multi_dot(&tensors.iter().collect::<Vec<_>>())?])
}

/// Without `dim`, the first dim of size 3.
fn call_cross(args: &Args) -> Called {
    let (a, b) = (args.get::<Tensor>("input")?, args.get::<Tensor>("other")?);
    let first = a.shape().iter().position(|&size| size == 3).unwrap_or(0) as i64;
    Ok(vec![a.try_cross(&b, args.get::<Option<i64>>("dim")?.unwrap_or(first))?])
}
