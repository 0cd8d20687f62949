//! Drawing graphs: ops are proposed at random and kept if their values make a meaningful comparison.
//!
//! Start at [`case_with`]. What jumps (rounding to integers, comparisons, positions) gets exact operands only, since
//! elsewhere a rounding could flip it.

use super::known::{World, max_abs};
use super::shrink::prune;
use super::{Tolerance, unique};
use crate::interp::value::Numbers;
use crate::{
    BinaryOp, CompareOp, ConvSpec, DType, DTypeKind, DTypeSet, Dims, Element, FftKind, Graph, LinalgOp, Node, NodeId,
    Op, ReduceOp, Scalar, ScanOp, ScatterMode, Shape, Source, UnaryOp, WindowDim, WindowSpec, infer, random_word,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use smallvec::SmallVec;

/// What [`case_with`] draws.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many ops, sources left out.
    pub ops: RangeInclusive<usize>,
    /// The dtypes that occur. `bool`, `i32`, `i64` and `u32` may occur in any case: as conditions, indices, random bits.
    pub dtypes: DTypeSet,
    /// Every result of an op is an output, where it is the only right one; else those that nothing uses, and a few more.
    pub every_node: bool,
    /// Elements of a value, at most.
    pub max_elements: usize,
}

impl Default for Settings {
    /// 5 to 40 ops of all dtypes, values of up to 600 elements.
    fn default() -> Settings {
        Settings { ops: 5..=40, dtypes: DTypeSet::ALL, every_node: false, max_elements: 600 }
    }
}

/// A random graph that verifies and does not fault, and its inputs. The same seed gives the same case.
pub fn case(seed: u64) -> (Graph, Vec<Vec<u8>>) {
    case_with(seed, &Settings::default())
}

/// [`case`] with settings.
///
/// # Panics
/// If the range of ops or the set of dtypes is empty.
pub fn case_with(seed: u64, settings: &Settings) -> (Graph, Vec<Vec<u8>>) {
    let mut draw = Draw { seed, drawn: 0 };
    let (few, many) = (*settings.ops.start(), *settings.ops.end());
    let want = few + draw.below(many.checked_sub(few).expect("the range of ops is not empty") + 1);
    let dtypes: Vec<DType> = settings.dtypes.iter().collect();
    let floats: Vec<DType> = dtypes.iter().copied().filter(|dtype| dtype.is_float()).collect();
    // Few dtypes a case, so that values meet; and mostly a float among them, as most ops want one.
    let dtypes: Vec<DType> = (0..4)
        .map(|i| if i < 2 && !floats.is_empty() && !draw.one_in(8) { draw.pick(&floats) } else { draw.pick(&dtypes) })
        .collect();
    let (empty, special) = (draw.one_in(12), draw.one_in(6));
    let mut generator =
        Generator { draw, world: World::new(Vec::new()), dtypes, settings: settings.clone(), empty, special };
    for _ in 0..2 {
        let (dtype, shape) = (generator.dtype(), generator.shape());
        generator.input(dtype, &shape);
    }
    // Some proposals fail; a case may end with fewer ops than wanted, rather than never.
    for _ in 0..want * 12 {
        if generator.ops() >= want {
            break;
        }
        generator.propose();
    }
    generator.finish()
}

/// A stream of random numbers.
struct Draw {
    seed: u64,
    drawn: u64,
}

impl Draw {
    fn bits(&mut self) -> u32 {
        self.drawn += 1;
        random_word(self.seed, 0, self.drawn)
    }

    fn below(&mut self, n: usize) -> usize {
        self.bits() as usize % n
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// From −1 to 1.
    fn unit(&mut self) -> f64 {
        f64::from(self.bits()) / f64::from(u32::MAX) * 2.0 - 1.0
    }
}

struct Generator {
    draw: Draw,
    world: World,
    dtypes: Vec<DType>,
    settings: Settings,
    /// Sizes of 0 occur.
    empty: bool,
    /// NaN, infinities and −0 occur in inputs.
    special: bool,
}

/// The kinds of inputs that floats are drawn as.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    /// Small multiples of 1/8.
    Dyadic,
    /// Anything between −2 and 2.
    Smooth,
}

impl Generator {
    fn ops(&self) -> usize {
        self.world.graph.nodes.iter().filter(|node| !node.op.is_source()).count()
    }

    fn finish(mut self) -> (Graph, Vec<Vec<u8>>) {
        let graph = &self.world.graph;
        let unique = unique(graph);
        let mut used = alloc::vec![false; graph.nodes.len()];
        graph.nodes.iter().flat_map(|node| &node.inputs).for_each(|id| used[id.idx()] = true);
        let every_node = self.settings.every_node;
        let mut wanted = |id: NodeId| every_node || !used[id.idx()] || self.draw.one_in(8);
        let mut outputs: Vec<NodeId> = graph
            .iter()
            .filter(|(id, node)| unique[id.idx()] && !node.op.is_source() && wanted(*id))
            .map(|(id, _)| id)
            .collect();
        if outputs.is_empty() {
            outputs.push(NodeId(0));
        }
        // Proposals that failed left sources behind.
        let World { mut graph, inputs, .. } = self.world;
        graph.outputs = outputs;
        prune(graph, &inputs)
    }

    // --- what exists ---

    fn shape_of(&self, id: NodeId) -> Shape {
        self.world.graph[id].shape.clone()
    }

    fn dtype_of(&self, id: NodeId) -> DType {
        self.world.graph[id].dtype
    }

    /// Some value that may be used, mostly a late one, so that chains grow long.
    fn any(&mut self) -> NodeId {
        let unique = unique(&self.world.graph);
        let nodes = self.world.graph.nodes.len();
        for _ in 0..20 {
            let back = if self.draw.one_in(3) { nodes } else { nodes.min(4) };
            let id = nodes - 1 - self.draw.below(back);
            if unique[id] {
                return NodeId(id as u32);
            }
        }
        NodeId(0)
    }

    /// Some value for which `fits` holds.
    fn some(&mut self, fits: impl Fn(&Generator, NodeId) -> bool) -> Option<NodeId> {
        for _ in 0..12 {
            let id = self.any();
            if fits(self, id) {
                return Some(id);
            }
        }
        None
    }

    fn of_dtypes(&mut self, dtypes: DTypeSet) -> Option<NodeId> {
        self.some(|this, id| dtypes.contains(this.dtype_of(id)))
    }

    fn exact_of(&mut self, dtypes: DTypeSet) -> Option<NodeId> {
        self.some(|this, id| dtypes.contains(this.dtype_of(id)) && this.world.exact(id))
    }

    fn exact(&self, id: NodeId) -> bool {
        self.world.exact(id)
    }

    fn dim(&mut self, shape: &Shape) -> Option<usize> {
        if shape.rank() == 0 { None } else { Some(self.draw.below(shape.rank())) }
    }

    // --- what is made ---

    fn dtype(&mut self) -> DType {
        self.draw.pick(&self.dtypes.clone())
    }

    fn size(&mut self) -> usize {
        if self.empty && self.draw.one_in(6) { 0 } else { self.draw.pick(&[1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 33]) }
    }

    fn shape(&mut self) -> Shape {
        let rank = self.draw.pick(&[0, 1, 1, 2, 2, 2, 3, 3, 4]);
        loop {
            let shape: Shape = (0..rank).map(|_| self.size()).collect();
            if shape.numel() <= self.settings.max_elements {
                return shape;
            }
        }
    }

    fn scalar(&mut self, dtype: DType, style: Style) -> Scalar {
        if self.special && dtype.is_float() && self.draw.one_in(9) {
            return Scalar::Float(self.draw.pick(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0]));
        }
        match dtype.kind() {
            DTypeKind::Bool => Scalar::Bool(self.draw.one_in(2)),
            DTypeKind::Unsigned | DTypeKind::Signed if self.draw.one_in(40) => {
                Scalar::UInt(u64::from(self.draw.bits()) << 32 | u64::from(self.draw.bits()))
            }
            DTypeKind::Unsigned => Scalar::Int(self.draw.below(17) as i64),
            DTypeKind::Signed => Scalar::Int(self.draw.below(17) as i64 - 8),
            DTypeKind::Float => match style {
                Style::Dyadic => Scalar::Float((self.draw.below(33) as f64 - 16.0) / 8.0),
                Style::Smooth => Scalar::Float(self.draw.unit() * 2.0),
            },
        }
    }

    fn style(&mut self) -> Style {
        if self.draw.one_in(3) { Style::Dyadic } else { Style::Smooth }
    }

    fn input(&mut self, dtype: DType, shape: &Shape) -> NodeId {
        let style = self.style();
        let bytes = (0..shape.numel())
            .flat_map(|_| self.scalar(dtype, style).to_le_bytes(dtype).into_iter().take(dtype.size()))
            .collect();
        self.input_of(dtype, shape, bytes)
    }

    fn input_of(&mut self, dtype: DType, shape: &Shape, bytes: Vec<u8>) -> NodeId {
        let slot = self.world.inputs.len() as u32;
        self.world.inputs.push(bytes);
        self.source(Op::Input(slot), dtype, shape)
    }

    fn source(&mut self, op: Op, dtype: DType, shape: &Shape) -> NodeId {
        let node = Node { op, inputs: SmallVec::new(), dtype, shape: shape.clone(), source: Source::default() };
        self.world.add(node)
    }

    fn constant(&mut self, scalar: impl Into<Scalar>, dtype: DType, shape: &Shape) -> NodeId {
        self.source(Op::Const(scalar.into().cast(dtype)), dtype, shape)
    }

    /// A value of this dtype and shape: one that exists, or a new input, maybe broadcast, or a constant.
    fn like(&mut self, dtype: DType, shape: &Shape) -> Option<NodeId> {
        if shape.numel() > self.settings.max_elements {
            return None;
        }
        let fits = |this: &Generator, id: NodeId| this.dtype_of(id) == dtype && this.world.graph[id].shape == *shape;
        match self.draw.below(6) {
            0..=2 => {
                let found = self.some(fits);
                Some(found.unwrap_or_else(|| self.input(dtype, shape)))
            }
            3 => {
                let skipped = self.draw.below(shape.rank() + 1);
                let small: Shape = shape[skipped..].iter().map(|&n| if self.draw.one_in(2) { 1 } else { n }).collect();
                let small = self.input(dtype, &small);
                self.push(Op::Expand, &[small], Some(shape))
            }
            4 => {
                let style = self.style();
                let scalar = self.scalar(dtype, style);
                Some(self.constant(scalar, dtype, shape))
            }
            _ => Some(self.input(dtype, shape)),
        }
    }

    /// An op, if its rule holds and its values are good.
    fn push(&mut self, op: Op, operands: &[NodeId], shape: Option<&Shape>) -> Option<NodeId> {
        let id = self.push_any(op, operands, shape)?;
        if self.is_good(id) {
            return Some(id);
        }
        self.world.pop();
        None
    }

    /// An op, if its rule holds.
    fn push_any(&mut self, op: Op, operands: &[NodeId], shape: Option<&Shape>) -> Option<NodeId> {
        let (dtype, shape) = {
            let known: SmallVec<[(DType, &Shape); 3]> =
                operands.iter().map(|&id| (self.world.graph[id].dtype, &self.world.graph[id].shape)).collect();
            infer(&op, &known, shape).ok()?
        };
        if shape.numel() > self.settings.max_elements {
            return None;
        }
        let inputs = SmallVec::from_slice(operands);
        Some(self.world.add(Node { op, inputs, dtype, shape, source: Source::default() }))
    }

    /// Whether a value holds neither NaN nor infinities.
    fn is_finite(&self, id: NodeId) -> bool {
        match self.world.value(id).numbers() {
            Numbers::Floats(floats) => floats.iter().all(|x| x.is_finite()),
            Numbers::Ints(_) => true,
        }
    }

    /// Whether a comparison of this value would tell right from wrong.
    fn is_good(&self, id: NodeId) -> bool {
        if self.world.faulty(id) || self.world.may_overflow(id) || self.turns_on_a_zero(id) {
            return false;
        }
        let node = &self.world.graph[id];
        let Numbers::Floats(floats) = self.world.value(id).numbers() else {
            return true;
        };
        let mut operands = node.inputs.iter();
        if !floats.iter().all(|x| x.is_finite())
            && operands.all(|&id| self.is_finite(id))
            && !matches!(node.op, Op::Pad { .. })
        {
            return false;
        }
        let max = max_abs(self.world.value(id));
        let (limit, share) = match node.dtype {
            DType::F16 | DType::BF16 => (1e3, 0.1),
            _ => (1e6, 1e-3),
        };
        match self.world.tolerance(id) {
            Tolerance::Elements(elements) => {
                max <= limit && elements.iter().all(|&element| element <= share * max.max(1e-2))
            }
            Tolerance::Exact | Tolerance::Close { .. } => true,
        }
    }

    /// Whether the sign of a zero shows in the result; `maximum` and others leave it open.
    fn turns_on_a_zero(&self, id: NodeId) -> bool {
        let node = &self.world.graph[id];
        let operand = match node.op {
            Op::Unary(UnaryOp::Recip | UnaryOp::Rsqrt) | Op::Binary(BinaryOp::Pow | BinaryOp::Atan2) => 0,
            Op::Binary(BinaryOp::Div) => 1,
            _ => return false,
        };
        match self.world.value(node.inputs[operand]).numbers() {
            Numbers::Floats(floats) => floats.contains(&0.0),
            Numbers::Ints(_) => false,
        }
    }

    // --- proposals ---

    fn propose(&mut self) -> Option<NodeId> {
        match self.draw.below(40) {
            0..=3 => self.unary(),
            4..=8 => self.binary(),
            9 => self.compare(),
            10 => self.select(),
            11 => self.cast(),
            12 => self.bitcast(),
            13 | 14 => self.reshape(),
            15 | 16 => self.permute(),
            17 => self.expand(),
            18 | 19 => self.slice(),
            20 => self.pad(),
            21 => self.concat(),
            22 => self.window(),
            23..=25 => self.reduce(),
            26 => self.scan(),
            27 => self.order(),
            28 => self.gather(),
            29 => self.scatter(),
            30 | 31 => self.matmul(),
            32 => self.conv(),
            33 => self.fold(),
            34 => self.fft(),
            35 => self.factorization(),
            36 => self.triangular_solve(),
            37 => self.normalization(),
            38 => self.iota_or_random(),
            _ => {
                let (dtype, shape) = (self.dtype(), self.shape());
                Some(self.input(dtype, &shape))
            }
        }
    }

    fn unary(&mut self) -> Option<NodeId> {
        let op = self.draw.pick(UnaryOp::ALL);
        let jumps = matches!(op, UnaryOp::Sign | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Round);
        let mut x = if jumps { self.exact_of(op.dtypes())? } else { self.of_dtypes(op.dtypes())? };
        let positive = matches!(
            op,
            UnaryOp::Recip | UnaryOp::Sqrt | UnaryOp::Rsqrt | UnaryOp::Log | UnaryOp::Log2 | UnaryOp::Log1p
        );
        if positive && !self.draw.one_in(8) {
            x = self.positive(x)?;
        }
        self.push(Op::Unary(op), &[x], None)
    }

    /// `|x| + 0.5`.
    fn positive(&mut self, x: NodeId) -> Option<NodeId> {
        let (dtype, shape) = (self.dtype_of(x), self.shape_of(x));
        let x = self.push(Op::Unary(UnaryOp::Abs), &[x], None)?;
        let half = self.constant(0.5, dtype, &shape);
        self.push(Op::Binary(BinaryOp::Add), &[x, half], None)
    }

    fn binary(&mut self) -> Option<NodeId> {
        let op = self.draw.pick(BinaryOp::ALL);
        let a = self.of_dtypes(op.dtypes())?;
        let (dtype, shape) = (self.dtype_of(a), self.shape_of(a));
        let mut b = if self.draw.one_in(10) { a } else { self.like(dtype, &shape)? };
        if let (BinaryOp::Div | BinaryOp::Rem, true) = (op, dtype.is_int()) {
            let one = self.constant(1, dtype, &shape);
            b = self.push(Op::Binary(BinaryOp::Or), &[b, one], None)?;
        }
        let a = match op {
            BinaryOp::Pow if dtype.is_float() && !self.draw.one_in(8) => self.positive(a)?,
            BinaryOp::Rem if dtype.is_float() && !(self.exact(a) && self.exact(b)) => return None,
            // The angle jumps at the negative half of an axis.
            BinaryOp::Atan2 if !(self.exact(a) && self.exact(b)) => return None,
            _ => a,
        };
        if let (BinaryOp::Div, true, false) = (op, dtype.is_float(), self.draw.one_in(8)) {
            b = self.positive(b)?;
        }
        self.push(Op::Binary(op), &[a, b], None)
    }

    fn compare(&mut self) -> Option<NodeId> {
        let op = self.draw.pick(CompareOp::ALL);
        let a = self.exact_of(DTypeSet::ALL)?;
        let (dtype, shape) = (self.dtype_of(a), self.shape_of(a));
        let b = self.like(dtype, &shape).filter(|&b| self.exact(b))?;
        self.push(Op::Compare(op), &[a, b], None)
    }

    fn select(&mut self) -> Option<NodeId> {
        let a = self.any();
        let (dtype, shape) = (self.dtype_of(a), self.shape_of(a));
        let b = self.like(dtype, &shape)?;
        let condition = self.like(DType::Bool, &shape)?;
        self.push(Op::Select, &[condition, a, b], None)
    }

    fn cast(&mut self) -> Option<NodeId> {
        let dtype = self.dtype();
        let x = if dtype.is_float() { self.any() } else { self.exact_of(DTypeSet::ALL)? };
        self.push(Op::Cast(dtype), &[x], None)
    }

    fn bitcast(&mut self) -> Option<NodeId> {
        let (dtype, x) = (self.dtype(), self.exact_of(DTypeSet::ALL)?);
        // NaN has many bits, which arithmetic may choose among.
        let is_nan = match self.world.value(x).numbers() {
            Numbers::Floats(floats) => floats.iter().any(|x| x.is_nan() || *x == 0.0),
            Numbers::Ints(_) => false,
        };
        // To a float, an integer's bits would be any number at all.
        if is_nan || (dtype.is_float() && !self.dtype_of(x).is_float()) {
            return None;
        }
        self.push(Op::Bitcast(dtype), &[x], None)
    }

    fn reshape(&mut self) -> Option<NodeId> {
        let x = self.any();
        let mut rest = self.shape_of(x).numel();
        let mut shape = Shape::scalar();
        if rest == 0 {
            shape = self.shape_of(x).iter().rev().copied().collect();
            rest = 1;
        }
        // Prime factors gather into dims at random, with a 1 now and then.
        let mut size = 1;
        for prime in [2, 3, 5, 7, 11, 13, 17] {
            while rest.is_multiple_of(prime) {
                rest /= prime;
                size *= prime;
                if self.draw.one_in(2) {
                    shape.dims_mut().push(size);
                    size = 1;
                }
            }
        }
        let last = size * rest;
        if last > 1 || self.draw.one_in(4) {
            shape.dims_mut().push(last);
        }
        let shift = if shape.rank() > 0 { self.draw.below(shape.rank()) } else { 0 };
        shape.dims_mut().rotate_left(shift);
        if shape.rank() > 5 {
            return None;
        }
        self.push(Op::Reshape, &[x], Some(&shape))
    }

    fn permute(&mut self) -> Option<NodeId> {
        let x = self.some(|this, id| this.shape_of(id).rank() >= 2)?;
        let mut perm: Dims = (0..self.shape_of(x).rank()).collect();
        for i in (1..perm.len()).rev() {
            perm.swap(i, self.draw.below(i + 1));
        }
        self.push(Op::Permute(perm), &[x], None)
    }

    fn expand(&mut self) -> Option<NodeId> {
        let x = self.any();
        let mut shape: Dims = self.shape_of(x).dims().into();
        for size in &mut shape {
            if *size == 1 && self.draw.one_in(2) {
                *size = self.size();
            }
        }
        if self.draw.one_in(2) && shape.len() < 5 {
            let size = self.size();
            shape.insert(0, size);
        }
        self.push(Op::Expand, &[x], Some(&shape.into()))
    }

    fn slice(&mut self) -> Option<NodeId> {
        let x = self.any();
        let from = self.shape_of(x);
        let (mut starts, mut steps, mut shape) = (Dims::new(), SmallVec::new(), Dims::new());
        for &n in from.iter() {
            let step: i64 = self.draw.pick(&[1, 1, 1, 2, 3, -1, -2]);
            let whole = n == 0 || self.draw.one_in(3);
            let start = match (n, whole) {
                (0, _) => 0,
                (_, true) => {
                    if step > 0 {
                        0
                    } else {
                        n - 1
                    }
                }
                (_, false) => self.draw.below(n),
            };
            let room = if n == 0 {
                0
            } else if step > 0 {
                n - start
            } else {
                start + 1
            };
            let most = room.div_ceil(step.unsigned_abs() as usize);
            let size = if whole || most == 0 { most } else { most - self.draw.below(most) };
            let size = if self.empty && self.draw.one_in(8) { 0 } else { size };
            starts.push(start);
            steps.push(step);
            shape.push(size);
        }
        self.push(Op::Slice { starts, steps }, &[x], Some(&shape.into()))
    }

    fn pad(&mut self) -> Option<NodeId> {
        let x = self.any();
        let from = self.shape_of(x);
        let mut low = Dims::new();
        let mut shape = Dims::new();
        for &n in from.iter() {
            low.push(self.draw.below(3));
            shape.push(n + low[low.len() - 1] + self.draw.below(3));
        }
        let value = self.scalar(self.dtype_of(x), Style::Dyadic);
        self.push(Op::Pad { low, value }, &[x], Some(&shape.into()))
    }

    fn concat(&mut self) -> Option<NodeId> {
        let x = self.any();
        let (dtype, shape) = (self.dtype_of(x), self.shape_of(x));
        let dim = self.dim(&shape)?;
        let mut operands = alloc::vec![x];
        for _ in 0..self.draw.below(3) {
            let size = self.size();
            operands.push(self.like(dtype, &shape.with_dim(dim, size))?);
        }
        let place = self.draw.below(operands.len());
        operands.swap(0, place);
        self.push(Op::Concat { dim }, &operands, None)
    }

    fn window_spec(&mut self, dims: &[usize]) -> WindowSpec {
        let mut dim = |&n: &usize| WindowDim {
            size: 1 + self.draw.below(n.clamp(1, 4)),
            step: 1 + self.draw.below(3),
            dilation: 1 + self.draw.below(2),
        };
        WindowSpec { dims: dims.iter().map(&mut dim).collect() }
    }

    fn window(&mut self) -> Option<NodeId> {
        let x = self.some(|this, id| (1..=3).contains(&this.shape_of(id).rank()))?;
        let shape = self.shape_of(x);
        let count = 1 + self.draw.below(shape.rank().min(2));
        let spec = self.window_spec(&shape[shape.rank() - count..]);
        self.push(Op::Window(spec), &[x], None)
    }

    fn fold(&mut self) -> Option<NodeId> {
        let dtype = self.dtype();
        let shape = self.shape();
        if shape.rank() == 0 {
            return None;
        }
        let count = 1 + self.draw.below(shape.rank().min(2));
        let spec = self.window_spec(&shape[shape.rank() - count..]);
        let (_, windows) = infer(&Op::Window(spec.clone()), &[(dtype, &shape)], None).ok()?;
        if windows.numel() > self.settings.max_elements {
            return None;
        }
        let windows = self.like(dtype, &windows)?;
        self.push(Op::Fold(spec), &[windows], Some(&shape))
    }

    fn reduce(&mut self) -> Option<NodeId> {
        let op = self.draw.pick(ReduceOp::ALL);
        let position = matches!(op, ReduceOp::ArgMax | ReduceOp::ArgMin);
        let x = if position { self.exact_of(op.dtypes())? } else { self.of_dtypes(op.dtypes())? };
        let rank = self.shape_of(x).rank();
        let dims: Dims = (0..rank).filter(|_| self.draw.one_in(2)).collect();
        self.push(Op::Reduce { op, dims }, &[x], None)
    }

    fn scan(&mut self) -> Option<NodeId> {
        let op = self.draw.pick(ScanOp::ALL);
        let x = self.of_dtypes(DTypeSet::NUMERIC)?;
        let dim = self.dim(&self.shape_of(x))?;
        self.push(Op::Scan { op, dim }, &[x], None)
    }

    fn order(&mut self) -> Option<NodeId> {
        let x = self.exact_of(DTypeSet::ALL)?;
        let shape = self.shape_of(x);
        let dim = self.dim(&shape)?;
        let side = self.draw.one_in(2);
        if self.draw.one_in(2) {
            return self.push(Op::ArgSort { dim, descending: side }, &[x], None);
        }
        let k = self.draw.below(shape[dim] + 1);
        self.push(Op::TopK { dim, largest: side }, &[x], Some(&shape.with_dim(dim, k)))
    }

    /// An index for `dim` of `x`.
    fn index(&mut self, x: &Shape, dim: usize) -> Option<NodeId> {
        let mut shape: Dims = x.dims().into();
        if self.draw.one_in(3) {
            shape.iter_mut().filter(|n| **n > 0).for_each(|n| *n -= self.draw.below(*n));
        }
        shape[dim] = if x[dim] == 0 { 0 } else { self.size() };
        let shape = Shape::from(shape);
        if shape.numel() > self.settings.max_elements {
            return None;
        }
        let dtype = self.draw.pick(&[DType::I32, DType::I64]);
        // Mostly data; now and then computed, and brought into range.
        let computed = self.some(|this, id| this.dtype_of(id) == dtype && this.world.graph[id].shape == shape);
        if let (Some(id), true) = (computed, x[dim] > 0) {
            let (zero, last) = (self.constant(0, dtype, &shape), self.constant(x[dim] - 1, dtype, &shape));
            let id = self.push(Op::Binary(BinaryOp::Max), &[id, zero], None)?;
            return self.push(Op::Binary(BinaryOp::Min), &[id, last], None);
        }
        let mut bytes = Vec::new();
        for _ in 0..shape.numel() {
            let i = self.draw.below(x[dim]);
            match dtype {
                DType::I32 => i32::write_le(&[i as i32], &mut bytes),
                _ => i64::write_le(&[i as i64], &mut bytes),
            }
        }
        Some(self.input_of(dtype, &shape, bytes))
    }

    fn gather(&mut self) -> Option<NodeId> {
        let x = self.any();
        let shape = self.shape_of(x);
        let dim = self.dim(&shape)?;
        let index = self.index(&shape, dim)?;
        self.push(Op::Gather { dim }, &[x, index], None)
    }

    fn scatter(&mut self) -> Option<NodeId> {
        let mode = self.draw.pick(ScatterMode::ALL);
        let x = self.any();
        let (dtype, shape) = (self.dtype_of(x), self.shape_of(x));
        let dim = self.dim(&shape)?;
        let index = self.index(&shape, dim)?;
        let source = self.like(dtype, &self.shape_of(index))?;
        self.push(Op::Scatter { dim, mode }, &[x, index, source], None)
    }

    fn matmul(&mut self) -> Option<NodeId> {
        let a = self.some(|this, id| this.shape_of(id).rank() >= 2 && this.dtype_of(id) != DType::Bool)?;
        let (dtype, shape) = (self.dtype_of(a), self.shape_of(a));
        let rank = shape.rank();
        let columns = self.size();
        let other = shape.with_dim(rank - 2, shape[rank - 1]).with_dim(rank - 1, columns);
        if other.numel() > self.settings.max_elements {
            return None;
        }
        let mut mixes = |other: DType| self.settings.dtypes.contains(other) && self.draw.one_in(2);
        let b_dtype = match dtype {
            DType::I8 if mixes(DType::U8) => DType::U8,
            DType::U8 if mixes(DType::I8) => DType::I8,
            _ => dtype,
        };
        let b = self.like(b_dtype, &other)?;
        let out = match dtype {
            DType::F16 | DType::BF16 if self.draw.one_in(2) => DType::F32,
            DType::I8 | DType::U8 if b_dtype != dtype || self.draw.one_in(2) => DType::I32,
            _ => dtype,
        };
        self.push(Op::Matmul { out }, &[a, b], None)
    }

    fn conv(&mut self) -> Option<NodeId> {
        let spatial = self.draw.below(3);
        let floats: Vec<DType> = self.dtypes.iter().copied().filter(|dtype| dtype.is_float()).collect();
        let dtype = *floats.first()?;
        let groups = 1 + self.draw.below(2);
        let (c, o) = (1 + self.draw.below(3), 1 + self.draw.below(3));
        let mut x = Dims::from_slice(&[1 + self.draw.below(2), c * groups]);
        let mut weight = Dims::from_slice(&[o * groups, c]);
        let mut spec = ConvSpec {
            stride: Dims::new(),
            padding: SmallVec::new(),
            dilation: Dims::new(),
            input_dilation: Dims::new(),
            groups,
        };
        for _ in 0..spatial {
            x.push(1 + self.draw.below(8));
            weight.push(1 + self.draw.below(3));
            spec.stride.push(self.draw.pick(&[1, 1, 2, 3]));
            let mut side = || self.draw.pick(&[0, 0, 1, 2, -1]);
            spec.padding.push((side(), side()));
            spec.dilation.push(self.draw.pick(&[1, 1, 2]));
            spec.input_dilation.push(self.draw.pick(&[1, 1, 2]));
        }
        let (x, weight) = (self.like(dtype, &x.into())?, self.like(dtype, &weight.into())?);
        // Whether the zeros of padding and dilation meet an infinite weight is left open.
        if !self.is_finite(weight) {
            return None;
        }
        self.push(Op::Conv(Box::new(spec)), &[x, weight], None)
    }

    /// A dtype of this case that dense linear algebra takes.
    fn wide_float(&mut self) -> Option<DType> {
        self.dtypes.iter().copied().find(|dtype| matches!(dtype, DType::F32 | DType::F64))
    }

    fn fft(&mut self) -> Option<NodeId> {
        let dtype = self.wide_float()?;
        let mut shape = self.shape();
        if shape.rank() == 0 || shape.numel() * 2 > self.settings.max_elements {
            return None;
        }
        shape.dims_mut().push(2);
        let x = self.like(dtype, &shape)?;
        let dim = self.draw.below(shape.rank() - 1);
        let kind = self.draw.pick(&[FftKind::Forward, FftKind::Inverse]);
        // Which elements of a transform become NaN and which infinite is left open.
        if !self.is_finite(x) {
            return None;
        }
        self.push(Op::Fft { dim, kind }, &[x], None)
    }

    /// `[m, n]` matrices, maybe a batch of them, that are anything but singular.
    fn matrix(&mut self, dtype: DType, m: usize, n: usize) -> Option<NodeId> {
        let mut shape: Dims = if self.draw.one_in(2) { Dims::from_slice(&[2]) } else { Dims::new() };
        shape.extend([m, n]);
        let shape = Shape::from(shape);
        let mut bytes = Vec::new();
        for at in 0..shape.numel() {
            let diagonal = if at / n % m == at % n { 3.0 } else { 0.0 };
            let scalar = Scalar::Float(self.draw.unit() + diagonal);
            bytes.extend_from_slice(&scalar.to_le_bytes(dtype)[..dtype.size()]);
        }
        Some(self.input_of(dtype, &shape, bytes))
    }

    /// Swaps the last two dims.
    fn transpose(&mut self, x: NodeId) -> Option<NodeId> {
        let mut perm: Dims = (0..self.shape_of(x).rank()).collect();
        let rank = perm.len();
        perm.swap(rank - 1, rank - 2);
        self.push_any(Op::Permute(perm), &[x], None)
    }

    /// Rows `first..first + count` of the last two dims.
    fn rows(&mut self, x: NodeId, first: usize, count: usize) -> Option<NodeId> {
        let shape = self.shape_of(x);
        let dim = shape.rank() - 2;
        let mut starts = Dims::from_elem(0, shape.rank());
        starts[dim] = first;
        let steps = SmallVec::from_elem(1, shape.rank());
        self.push_any(Op::Slice { starts, steps }, &[x], Some(&shape.with_dim(dim, count)))
    }

    /// A factorization. Where factors are not unique, their product follows.
    fn factorization(&mut self) -> Option<NodeId> {
        let dtype = self.wide_float()?;
        let (m, n) = (1 + self.draw.below(5), 1 + self.draw.below(5));
        let product = Op::Matmul { out: dtype };
        match self.draw.below(6) {
            0 => {
                let a = self.matrix(dtype, n, n)?;
                let transposed = self.transpose(a)?;
                let gram = self.push(product, &[a, transposed], None)?;
                self.push(Op::Linalg(LinalgOp::Cholesky), &[gram], None)
            }
            1 => {
                let a = self.matrix(dtype, m, n)?;
                self.push(Op::Linalg(LinalgOp::Lu), &[a], None)
            }
            2 => {
                let a = self.matrix(dtype, m, n)?;
                let packed = self.push_any(Op::Linalg(LinalgOp::Qr), &[a], None)?;
                let (q, r) = (self.rows(packed, 0, m)?, self.rows(packed, m, n)?);
                let r = self.transpose(r)?;
                self.push(product, &[q, r], None)
            }
            3 => {
                let a = self.matrix(dtype, m, n)?;
                let packed = self.push_any(Op::Linalg(LinalgOp::Svd), &[a], None)?;
                let (u, s, v) = (self.rows(packed, 0, m)?, self.rows(packed, m, 1)?, self.rows(packed, m + 1, n)?);
                let s = self.push_any(Op::Expand, &[s], Some(&self.shape_of(u)))?;
                let us = self.push_any(Op::Binary(BinaryOp::Mul), &[u, s], None)?;
                let v = self.transpose(v)?;
                self.push(product, &[us, v], None)
            }
            4 => {
                let a = self.matrix(dtype, n, n)?;
                let packed = self.push_any(Op::Linalg(LinalgOp::Eigh), &[a], None)?;
                let (w, v) = (self.rows(packed, 0, 1)?, self.rows(packed, 1, n)?);
                let w = self.push_any(Op::Expand, &[w], Some(&self.shape_of(v)))?;
                let vw = self.push_any(Op::Binary(BinaryOp::Mul), &[v, w], None)?;
                let v = self.transpose(v)?;
                self.push(product, &[vw, v], None)
            }
            _ => {
                // The sum of the eigenvalues, whatever their order: [n + 1, n, 2] as rows of 2 · n, times ones.
                let a = self.matrix(dtype, n, n)?;
                let packed = self.push_any(Op::Linalg(LinalgOp::Eig), &[a], None)?;
                let mut shape = self.shape_of(a);
                let rank = shape.rank();
                shape = shape.with_dim(rank - 2, n + 1).with_dim(rank - 1, 2 * n);
                let rows = self.push_any(Op::Reshape, &[packed], Some(&shape))?;
                let values = self.rows(rows, 0, 1)?;
                let ones = self.constant(1, dtype, &shape.with_dim(rank - 2, 2 * n).with_dim(rank - 1, 1));
                self.push(product, &[values, ones], None)
            }
        }
    }

    fn triangular_solve(&mut self) -> Option<NodeId> {
        let dtype = self.wide_float()?;
        let n = 1 + self.draw.below(5);
        let a = self.matrix(dtype, n, n)?;
        let mut shape = self.shape_of(a);
        let last = shape.rank() - 1;
        shape.dims_mut()[last] = self.size();
        let b = self.like(dtype, &shape)?;
        let op = LinalgOp::TriangularSolve { upper: self.draw.one_in(2), unit_diagonal: self.draw.one_in(4) };
        self.push(Op::Linalg(op), &[a, b], None)
    }

    /// Softmax or layer norm over the last dim: reductions that ought to fuse with what is around them.
    fn normalization(&mut self) -> Option<NodeId> {
        let x = self.some(|this, id| this.dtype_of(id).is_float() && this.shape_of(id).rank() > 0)?;
        let (dtype, shape) = (self.dtype_of(x), self.shape_of(x));
        let last = shape.rank() - 1;
        let softmax = self.draw.one_in(2);
        let over = |op: ReduceOp| Op::Reduce { op, dims: Dims::from_slice(&[last]) };
        if softmax {
            let max = self.push(over(ReduceOp::Max), &[x], None)?;
            let shifted = self.combine(BinaryOp::Sub, x, max)?;
            let exp = self.push(Op::Unary(UnaryOp::Exp), &[shifted], None)?;
            let sum = self.push(over(ReduceOp::Sum), &[exp], None)?;
            return self.combine(BinaryOp::Div, exp, sum);
        }
        let count = self.constant(shape[last].max(1), dtype, &shape.with_dim(last, 1));
        let sum = self.push(over(ReduceOp::Sum), &[x], None)?;
        let mean = self.push(Op::Binary(BinaryOp::Div), &[sum, count], None)?;
        let centered = self.combine(BinaryOp::Sub, x, mean)?;
        let squares = self.push(Op::Binary(BinaryOp::Mul), &[centered, centered], None)?;
        let sum = self.push(over(ReduceOp::Sum), &[squares], None)?;
        let variance = self.push(Op::Binary(BinaryOp::Div), &[sum, count], None)?;
        let variance = self.positive(variance)?;
        let scale = self.push(Op::Unary(UnaryOp::Rsqrt), &[variance], None)?;
        self.combine(BinaryOp::Mul, centered, scale)
    }

    /// `x` with `total`, which is expanded to it.
    fn combine(&mut self, op: BinaryOp, x: NodeId, total: NodeId) -> Option<NodeId> {
        let total = self.push(Op::Expand, &[total], Some(&self.shape_of(x)))?;
        self.push(Op::Binary(op), &[x, total], None)
    }

    fn iota_or_random(&mut self) -> Option<NodeId> {
        let shape = self.shape();
        if self.draw.one_in(2) {
            let dim = self.dim(&shape)?;
            return self.push(Op::Iota { dim }, &[], Some(&shape));
        }
        let seed = u64::from(self.draw.bits()) << 32 | u64::from(self.draw.bits());
        let offset = self.draw.pick(&[0, 1, 1 << 40, u64::MAX]);
        let bits = self.push(Op::Random { seed, offset }, &[], Some(&shape))?;
        // Uniform numbers from the upper bits, as the tensor floor makes them.
        let shift = self.constant(8, DType::U32, &shape);
        let upper = self.push(Op::Binary(BinaryOp::Shr), &[bits, shift], None)?;
        let dtype = self.wide_float()?;
        let numbers = self.push(Op::Cast(dtype), &[upper], None)?;
        let scale = self.constant(libm::exp2(-24.0), dtype, &shape);
        self.push(Op::Binary(BinaryOp::Mul), &[numbers, scale], None)
    }
}
