//! Recurrent layers and cells. Parameters have PyTorch's names and layouts: `weight_ih_l0` `[gates · hidden, input]`, gate
//! order i f g o for LSTM, r z n for GRU.
//!
//! A layer runs its cell over time, step by step; the products with the inputs of all steps are one.

use crate::module::{Path, Visitor, VisitorMut};
use crate::{Mode, Module, Param, init};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use fornax_tensor::{DType, Device, Error, Tensor};

/// Settings of a recurrent layer; sizes are given to `new`.
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrentConfig {
    /// Layers on top of one another; 1.
    pub num_layers: usize,
    /// Whether there are biases; true.
    pub bias: bool,
    /// Whether inputs and outputs are `[n, time, …]` in place of `[time, n, …]`; false.
    pub batch_first: bool,
    /// Probability of dropout between layers; 0.
    pub dropout: f64,
    /// Whether a second cell runs backwards in time; false.
    pub bidirectional: bool,
    /// Size of the hidden state after a projection (LSTM only); 0: no projection.
    pub proj_size: usize,
    /// The function of a plain cell; tanh.
    pub nonlinearity: Nonlinearity,
}

impl Default for RecurrentConfig {
    fn default() -> RecurrentConfig {
        RecurrentConfig {
            num_layers: 1,
            bias: true,
            batch_first: false,
            dropout: 0.0,
            bidirectional: false,
            proj_size: 0,
            nonlinearity: Nonlinearity::Tanh,
        }
    }
}

/// The function of a plain recurrent cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nonlinearity {
    /// `tanh x`.
    #[default]
    Tanh,
    /// `max(x, 0)`.
    Relu,
}

/// What a cell computes from its gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rnn(Nonlinearity),
    Lstm,
    Gru,
}

impl Kind {
    fn gates(self) -> usize {
        match self {
            Kind::Rnn(_) => 1,
            Kind::Lstm => 4,
            Kind::Gru => 3,
        }
    }

    /// One step: from the input's part of the gates `[n, gates · hidden]` and the state to the next state.
    #[track_caller]
    fn step(self, from_input: &Tensor, weights: &Weights, (h, c): &State) -> State {
        let from_state = h.linear(&weights.weight_hh, weights.bias_hh.as_deref());
        let hidden = weights.weight_hh.shape()[0] / self.gates();
        let part = |x: &Tensor, gate: usize| x.narrow(-1, (gate * hidden) as i64, hidden); // [n, hidden]
        match self {
            Kind::Rnn(Nonlinearity::Tanh) => ((from_input + from_state).tanh(), c.clone()),
            Kind::Rnn(Nonlinearity::Relu) => ((from_input + from_state).relu(), c.clone()),
            Kind::Lstm => {
                let gates = from_input + from_state;
                let [i, f, o] = [0, 1, 3].map(|gate| part(&gates, gate).sigmoid());
                let c = f * c + i * part(&gates, 2).tanh();
                let h = o * c.tanh();
                let h = match &weights.weight_hr {
                    Some(projection) => h.linear(projection, None),
                    None => h,
                };
                (h, c)
            }
            Kind::Gru => {
                let [r, z] = [0, 1].map(|gate| (part(from_input, gate) + part(&from_state, gate)).sigmoid());
                let n = (part(from_input, 2) + r * part(&from_state, 2)).tanh();
                (&n + z * (h - &n), c.clone())
            }
        }
    }
}

/// Hidden and (for LSTM; otherwise unused) cell state, each `[n, size]`.
type State = (Tensor, Tensor);

/// The parameters of one cell.
#[derive(Clone, Debug)]
struct Weights {
    weight_ih: Param,
    weight_hh: Param,
    bias_ih: Option<Param>,
    bias_hh: Option<Param>,
    weight_hr: Option<Param>,
}

impl Weights {
    #[track_caller]
    fn new(kind: Kind, input: usize, hidden: usize, proj: usize, bias: bool, device: &Device) -> Weights {
        let uniform = |shape: &[usize]| Param::new(&init::fan_in_uniform(shape, hidden, device));
        let (rows, state) = (kind.gates() * hidden, if proj > 0 { proj } else { hidden });
        Weights {
            weight_ih: uniform(&[rows, input]),
            weight_hh: uniform(&[rows, state]),
            bias_ih: bias.then(|| uniform(&[rows])),
            bias_hh: bias.then(|| uniform(&[rows])),
            weight_hr: (proj > 0).then(|| uniform(&[proj, hidden])),
        }
    }

    fn visit<'a>(&'a self, suffix: &str, path: &mut Path, visitor: &mut dyn Visitor<'a>) {
        let optional = [("bias_ih", &self.bias_ih), ("bias_hh", &self.bias_hh), ("weight_hr", &self.weight_hr)];
        let always = [("weight_ih", &self.weight_ih), ("weight_hh", &self.weight_hh)];
        let optional = optional.into_iter().filter_map(|(name, param)| Some((name, param.as_ref()?)));
        for (name, param) in always.into_iter().chain(optional) {
            path.push(&format!("{name}{suffix}"));
            param.visit(path, visitor);
            path.pop();
        }
    }

    fn visit_mut(&mut self, suffix: &str, path: &mut Path, visitor: &mut dyn VisitorMut) {
        let optional =
            [("bias_ih", &mut self.bias_ih), ("bias_hh", &mut self.bias_hh), ("weight_hr", &mut self.weight_hr)];
        let always = [("weight_ih", &mut self.weight_ih), ("weight_hh", &mut self.weight_hh)];
        let optional = optional.into_iter().filter_map(|(name, param)| Some((name, param.as_mut()?)));
        for (name, param) in always.into_iter().chain(optional) {
            path.push(&format!("{name}{suffix}"));
            param.visit_mut(path, visitor);
            path.pop();
        }
    }
}

/// What [`Rnn`], [`Lstm`] and [`Gru`] have in common.
#[derive(Clone, Debug)]
struct Stack {
    kind: Kind,
    /// For each layer its cell, and the one backwards if there is one.
    weights: Vec<Vec<Weights>>,
    hidden_size: usize,
    config: RecurrentConfig,
    mode: Mode,
}

impl Stack {
    #[track_caller]
    fn new(kind: Kind, input_size: usize, hidden_size: usize, config: &RecurrentConfig, device: &Device) -> Stack {
        assert!(config.num_layers > 0, "a recurrent layer needs at least one layer");
        assert!(
            config.proj_size == 0 || (kind == Kind::Lstm && config.proj_size < hidden_size),
            "proj_size {} is for LSTM only, and less than hidden_size {hidden_size}",
            config.proj_size
        );
        let directions = if config.bidirectional { 2 } else { 1 };
        let state = if config.proj_size > 0 { config.proj_size } else { hidden_size };
        let layer = |i: usize| {
            let input = if i == 0 { input_size } else { state * directions };
            let cell = |_| Weights::new(kind, input, hidden_size, config.proj_size, config.bias, device);
            (0..directions).map(cell).collect()
        };
        let weights = (0..config.num_layers).map(layer).collect();
        Stack { kind, weights, hidden_size, config: config.clone(), mode: Mode::default() }
    }

    fn suffix(layer: usize, direction: usize) -> String {
        format!("_l{layer}{}", if direction == 1 { "_reverse" } else { "" })
    }

    /// Output, and the last states `[layers · directions, n, size]`. States begin at 0 if not given.
    ///
    /// Items of the batch end at their `lengths`, if given: outputs after the end are 0, last states are those at the
    /// end, and backwards cells begin there.
    #[track_caller]
    fn forward(
        &self,
        x: &Tensor,
        h0: Option<&Tensor>,
        c0: Option<&Tensor>,
        lengths: Option<&Tensor>,
    ) -> (Tensor, Tensor, Tensor) {
        let first = &self.weights[0][0];
        let input_size = first.weight_ih.shape()[1];
        let is_single = x.rank() == 2;
        if !(2..=3).contains(&x.rank()) || x.shape()[x.rank() - 1] != input_size {
            let message = format!("x {} is not [time, n, {input_size}]", x.shape());
            Error::shape(self.name(), message).raise();
        }
        let batch_first = self.config.batch_first && !is_single;
        let mut x = match (is_single, batch_first) {
            (true, _) => x.unsqueeze(1),
            (false, true) => x.transpose(0, 1),
            (false, false) => x.clone(),
        }; // [time, n, input]
        let [time, n, _] = x.dims();
        if time == 0 {
            Error::shape(self.name(), "there are no time steps").raise();
        }
        if let Some(lengths) = lengths.filter(|lengths| lengths.shape()[..] != [n] || !lengths.dtype().is_int()) {
            let message = format!("lengths {}{} are not {n} integers", lengths.dtype(), lengths.shape());
            Error::shape(self.name(), message).raise();
        }
        // [time, n, 1]: whether a step counts.
        let counts = lengths.map(|lengths| {
            let step = Tensor::arange(0, time, 1, DType::I64, x.device()).unsqueeze(1);
            step.lt(lengths.to_dtype(DType::I64)).unsqueeze(-1)
        });
        let directions = self.weights[0].len();
        let cells = self.weights.len() * directions;
        let state_size = first.weight_hh.shape()[1];
        let begin = |given: Option<&Tensor>, what: &str, size: usize| match given {
            None => vec![Tensor::full([n, size], 0.0, x.dtype(), x.device()); cells],
            Some(given) => {
                let given = if is_single && given.rank() == 2 { given.unsqueeze(1) } else { given.clone() };
                if given.shape()[..] != [cells, n, size] {
                    let message = format!("{what} {} is not [{cells}, {n}, {size}]", given.shape());
                    Error::shape(self.name(), message).raise();
                }
                (0..cells).map(|cell| given.narrow(0, cell as i64, 1).squeeze(0)).collect()
            }
        };
        let (h, c) = (begin(h0, "h0", state_size), begin(c0, "c0", self.hidden_size));
        let mut last = Vec::new();
        for (i, layer) in self.weights.iter().enumerate() {
            let mut outputs = Vec::new();
            for (direction, weights) in layer.iter().enumerate() {
                let cell = i * directions + direction;
                let state = (h[cell].clone(), c[cell].clone());
                let (output, state) = self.run(&x, weights, state, direction == 1, counts.as_ref());
                outputs.push(output);
                last.push(state);
            }
            x = match outputs.as_slice() {
                [one] => one.clone(),
                both => Tensor::cat(&both.iter().collect::<Vec<_>>(), -1),
            };
            if self.config.dropout > 0.0 && self.mode.is_training() && i + 1 < self.weights.len() {
                x = x.dropout(self.config.dropout);
            }
        }
        let stack = |states: Vec<&Tensor>| {
            let stacked = Tensor::stack(&states, 0);
            if is_single { stacked.squeeze(1) } else { stacked }
        };
        let output = match (is_single, batch_first) {
            (true, _) => x.squeeze(1),
            (false, true) => x.transpose(0, 1),
            (false, false) => x,
        };
        let hn = stack(last.iter().map(|state| &state.0).collect());
        (output, hn, stack(last.iter().map(|state| &state.1).collect()))
    }

    /// One cell over all of `[time, n, …]`; steps that do not count leave the state as it is, and give 0.
    #[track_caller]
    fn run(
        &self,
        x: &Tensor,
        weights: &Weights,
        mut state: State,
        backwards: bool,
        counts: Option<&Tensor>,
    ) -> (Tensor, State) {
        let from_input = x.linear(&weights.weight_ih, weights.bias_ih.as_deref()); // [time, n, gates · hidden]
        let time = x.shape()[0];
        let mut outputs = Vec::with_capacity(time);
        for step in 0..time {
            let at = if backwards { time - 1 - step } else { step };
            let now = from_input.narrow(0, at as i64, 1).squeeze(0);
            let next = self.kind.step(&now, weights, &state);
            let Some(counts) = counts else {
                outputs.push(next.0.clone());
                state = next;
                continue;
            };
            let counts = counts.select(0, at as i64); // [n, 1]
            outputs.push(counts.where_(&next.0, 0.0).to_dtype(x.dtype()));
            state = (counts.where_(next.0, state.0), counts.where_(next.1, state.1));
        }
        if backwards {
            outputs.reverse();
        }
        (Tensor::stack(&outputs.iter().collect::<Vec<_>>(), 0), state)
    }

    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Rnn(_) => "Rnn",
            Kind::Lstm => "Lstm",
            Kind::Gru => "Gru",
        }
    }
}

impl Module for Stack {
    fn visit<'a>(&'a self, path: &mut Path, visitor: &mut dyn Visitor<'a>) {
        for (i, layer) in self.weights.iter().enumerate() {
            for (direction, weights) in layer.iter().enumerate() {
                weights.visit(&Stack::suffix(i, direction), path, visitor);
            }
        }
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        for (i, layer) in self.weights.iter_mut().enumerate() {
            for (direction, weights) in layer.iter_mut().enumerate() {
                weights.visit_mut(&Stack::suffix(i, direction), path, visitor);
            }
        }
        visitor.mode(path, &mut self.mode);
    }
}

macro_rules! layers {
    ($($(#[$doc:meta])* $name:ident, |$config:ident| $kind:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Shapes
        /// - input `[time, n, input]`, or `[n, time, input]` if `batch_first`, or `[time, input]`;
        /// - output the same with `directions · hidden` in place of `input`;
        /// - state `[layers · directions, n, hidden]`.
        ///
        /// All parameters start uniform in `±1/√hidden`, as in PyTorch.
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            #[module(flatten)]
            stack: Stack,
        }

        impl $name {
            /// A layer from `input_size` to `hidden_size`.
            ///
            /// # Panics
            /// If there are no layers, or a projection that does not fit.
            #[track_caller]
            pub fn new(input_size: usize, hidden_size: usize, $config: &RecurrentConfig, device: &Device) -> $name {
                $name { stack: Stack::new($kind, input_size, hidden_size, $config, device) }
            }
        }
    )*};
}

layers! {
    /// Elman's recurrent network: `h' = tanh(W_ih x + b_ih + W_hh h + b_hh)`.
    ///
    /// # References
    /// Elman (1990), *Finding Structure in Time*.
    Rnn, |config| Kind::Rnn(config.nonlinearity);
    /// Long short-term memory: `c' = f c + i g`, `h' = o tanh(c')`, with gates `i f o` (sigmoid) and `g` (tanh) of
    /// `W_ih x + b_ih + W_hh h + b_hh`.
    ///
    /// ```
    /// use fornax_nn::{Lstm, RecurrentConfig};
    /// use fornax_tensor::{Device, Tensor};
    /// let device = Device::cpu();
    /// let config = RecurrentConfig { num_layers: 2, batch_first: true, ..RecurrentConfig::default() };
    /// let lstm = Lstm::new(3, 8, &config, &device);
    /// let (output, (hn, cn)) = lstm.forward(&Tensor::zeros([4, 10, 3], &device), None);
    /// assert_eq!(output.dims(), [4, 10, 8]);
    /// assert_eq!((hn.dims(), cn.dims()), ([2, 4, 8], [2, 4, 8]));
    /// ```
    ///
    /// # References
    /// Hochreiter, Schmidhuber (1997), *Long Short-Term Memory*; projections: Sak, Senior, Beaufays (2014),
    /// arXiv:1402.1128.
    Lstm, |_config| Kind::Lstm;
    /// Gated recurrent units: `h' = (1 − z) n + z h`, with gates `r z` (sigmoid) and
    /// `n = tanh(W_in x + b_in + r (W_hn h + b_hn))`.
    ///
    /// # References
    /// Cho et al. (2014), *Learning Phrase Representations using RNN Encoder–Decoder*, arXiv:1406.1078.
    Gru, |_config| Kind::Gru;
}

macro_rules! forward_without_cell {
    ($($name:ident)*) => {$(
        impl $name {
            /// Output and last state. The state begins at `h0`, or at 0.
            ///
            /// # Panics
            /// If the shapes do not fit.
            #[fornax_macros::traced]
            #[track_caller]
            pub fn forward(&self, x: &Tensor, h0: Option<&Tensor>) -> (Tensor, Tensor) {
                let (output, hn, _) = self.stack.forward(x, h0, None, None);
                (output, hn)
            }

            /// As `forward`, for a batch of sequences that end at `lengths` `[n]` (integers): outputs after the end are
            /// 0, the last state is that at the end. What PyTorch does with a packed sequence.
            ///
            /// # Panics
            /// If the shapes do not fit.
            #[track_caller]
            pub fn forward_packed(&self, x: &Tensor, lengths: &Tensor, h0: Option<&Tensor>) -> (Tensor, Tensor) {
                let (output, hn, _) = self.stack.forward(x, h0, None, Some(lengths));
                (output, hn)
            }
        }
    )*};
}

forward_without_cell!(Rnn Gru);

impl Lstm {
    /// Output, and last hidden and cell state. The states begin at those given, or at 0.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<(&Tensor, &Tensor)>) -> (Tensor, (Tensor, Tensor)) {
        let (output, hn, cn) = self.stack.forward(x, state.map(|state| state.0), state.map(|state| state.1), None);
        (output, (hn, cn))
    }

    /// As [`Lstm::forward`], for a batch of sequences that end at `lengths` `[n]` (integers): outputs after the end are
    /// 0, the last states are those at the end. What PyTorch does with a packed sequence.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn forward_packed(
        &self,
        x: &Tensor,
        lengths: &Tensor,
        state: Option<(&Tensor, &Tensor)>,
    ) -> (Tensor, (Tensor, Tensor)) {
        let (h0, c0) = (state.map(|state| state.0), state.map(|state| state.1));
        let (output, hn, cn) = self.stack.forward(x, h0, c0, Some(lengths));
        (output, (hn, cn))
    }
}

/// One cell, its parameters named without a layer: `weight_ih`.
#[derive(Clone, Debug)]
struct Cell {
    kind: Kind,
    weights: Weights,
    hidden_size: usize,
}

impl Cell {
    #[track_caller]
    fn forward(&self, layer: &str, x: &Tensor, h: Option<&Tensor>, c: Option<&Tensor>) -> State {
        let input_size = self.weights.weight_ih.shape()[1];
        if !(1..=2).contains(&x.rank()) || x.shape()[x.rank() - 1] != input_size {
            Error::shape(layer, format!("x {} is not [n, {input_size}]", x.shape())).raise();
        }
        let is_single = x.rank() == 1;
        let batched = |x: &Tensor| if x.rank() == 1 { x.unsqueeze(0) } else { x.clone() };
        let x = batched(x);
        let begin = |given: Option<&Tensor>| match given {
            Some(given) => batched(given),
            None => Tensor::full([x.shape()[0], self.hidden_size], 0.0, x.dtype(), x.device()),
        };
        let state = (begin(h), begin(c));
        for given in [&state.0, &state.1] {
            if given.shape()[..] != [x.shape()[0], self.hidden_size] {
                let message = format!("state {} is not [{}, {}]", given.shape(), x.shape()[0], self.hidden_size);
                Error::shape(layer, message).raise();
            }
        }
        let from_input = x.linear(&self.weights.weight_ih, self.weights.bias_ih.as_deref());
        let (h, c) = self.kind.step(&from_input, &self.weights, &state);
        if is_single { (h.squeeze(0), c.squeeze(0)) } else { (h, c) }
    }
}

impl Module for Cell {
    fn visit<'a>(&'a self, path: &mut Path, visitor: &mut dyn Visitor<'a>) {
        self.weights.visit("", path, visitor);
    }
    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        self.weights.visit_mut("", path, visitor);
    }
}

macro_rules! cells {
    ($($(#[$doc:meta])* $name:ident, $kind:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            #[module(flatten)]
            cell: Cell,
        }

        impl $name {
            /// A cell from `input_size` to `hidden_size`.
            #[track_caller]
            pub fn new(input_size: usize, hidden_size: usize, device: &Device) -> $name {
                let weights = Weights::new($kind, input_size, hidden_size, 0, true, device);
                $name { cell: Cell { kind: $kind, weights, hidden_size } }
            }

            /// The same cell without biases.
            #[must_use]
            pub fn without_bias(mut self) -> $name {
                (self.cell.weights.bias_ih, self.cell.weights.bias_hh) = (None, None);
                self
            }
        }
    )*};
}

cells! {
    /// One step of [`Rnn`]: `[n, input]` and `[n, hidden]` to `[n, hidden]`.
    RnnCell, Kind::Rnn(Nonlinearity::Tanh);
    /// One step of [`Lstm`]: `[n, input]` and two `[n, hidden]` to two `[n, hidden]`.
    LstmCell, Kind::Lstm;
    /// One step of [`Gru`]: `[n, input]` and `[n, hidden]` to `[n, hidden]`.
    GruCell, Kind::Gru;
}

macro_rules! cell_forward_without_cell {
    ($($name:ident)*) => {$(
        impl $name {
            /// The next state, from `h` or from 0.
            ///
            /// # Panics
            /// If the shapes do not fit.
            #[fornax_macros::traced]
            #[track_caller]
            pub fn forward(&self, x: &Tensor, h: Option<&Tensor>) -> Tensor {
                self.cell.forward(stringify!($name), x, h, None).0
            }
        }
    )*};
}

cell_forward_without_cell!(RnnCell GruCell);

impl RnnCell {
    /// The same cell with another function.
    #[must_use]
    pub fn nonlinearity(mut self, nonlinearity: Nonlinearity) -> RnnCell {
        self.cell.kind = Kind::Rnn(nonlinearity);
        self
    }
}

impl LstmCell {
    /// The next hidden and cell state, from those given or from 0.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<(&Tensor, &Tensor)>) -> (Tensor, Tensor) {
        self.cell.forward("LstmCell", x, state.map(|state| state.0), state.map(|state| state.1))
    }
}
