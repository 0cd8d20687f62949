//! [`LockstepBackend`]: programs on the host, so that kernels can be held against the interpreter where there is no GPU.

use super::{Bound, Buffer as Memory, launch};
use crate::lower::{Settings, lower_with};
use crate::program::{Arg, BufferId, Call, Launch, Operand, Program};
use fornax_ir::{
    Backend, BoxFuture, Buffer, DType, DeviceBuffer, DeviceError, DeviceErrorKind, Fault, Graph, Memory as Usage, Node,
    NodeId, Outcome, Source, interpret,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A device that runs the kernels of a GPU on the host, with every access checked: for tests, not for speed.
///
/// ```
/// use fornax_ir::{Backend, BinaryOp, DType, Graph, Op};
/// use fornax_kernel::lockstep::LockstepBackend;
/// let device = LockstepBackend::default();
/// let mut graph = Graph::default();
/// let x = graph.input(DType::U8, [3]);
/// let y = graph.push(Op::Binary(BinaryOp::Mul), &[x, x])?;
/// graph.outputs.push(y);
/// let x = device.upload(DType::U8, &[1, 2, 3])?;
/// let outcome = device.execute(&graph, vec![x])?;
/// assert_eq!(device.bytes(&outcome.outputs[0])?, [1, 4, 9]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct LockstepBackend {
    settings: Settings,
    launches: AtomicU64,
    host: AtomicU64,
}

#[derive(Debug)]
struct HostBuffer(Vec<u8>);

impl DeviceBuffer for HostBuffer {
    fn len(&self) -> usize {
        self.0.len()
    }
}

fn misuse(message: impl Into<String>) -> DeviceError {
    DeviceError::new(DeviceErrorKind::Misuse, message)
}

impl LockstepBackend {
    /// A device for which programs are made in another way.
    pub fn with_settings(settings: Settings) -> LockstepBackend {
        LockstepBackend { settings, ..LockstepBackend::default() }
    }

    /// The bytes of a buffer of this device.
    ///
    /// # Errors
    /// If the buffer is another device's.
    pub fn bytes<'a>(&self, buffer: &'a Buffer) -> Result<&'a [u8], DeviceError> {
        let buffer: Option<&HostBuffer> = buffer.downcast();
        buffer.map(|buffer| buffer.0.as_slice()).ok_or_else(|| misuse("the buffer is another device's"))
    }
}

/// The buffers of a run.
struct Run<'a> {
    program: &'a Program,
    graph: &'a Graph,
    /// The place in `memory` of each buffer; results in the place of another value share it.
    places: Vec<Option<usize>>,
    memory: Vec<Memory>,
    /// The place of the fault buffer.
    faults: usize,
}

impl Run<'_> {
    fn add(&mut self, memory: Memory) -> usize {
        self.memory.push(memory);
        self.memory.len() - 1
    }

    fn place(&self, buffer: BufferId) -> usize {
        self.places[buffer.idx()].expect("buffers are made before they are used")
    }

    fn launches(&mut self, launches: &[Launch]) -> Result<(), DeviceError> {
        for one in launches {
            let function = &self.program.kernels[one.kernel];
            let bound = one.args.iter().zip(&function.params).map(|(arg, param)| match (arg, param) {
                (Arg::Buffer(buffer), _) => Bound::Buffer(self.place(*buffer)),
                (Arg::Faults, _) => Bound::Buffer(self.faults),
                (_, crate::ir::Param::Scalar(dtype)) => {
                    Bound::Scalar(arg.bits(*dtype, self.graph).expect("other arguments are scalars"))
                }
                (_, crate::ir::Param::Buffer { .. }) => unreachable!("a scalar is no buffer"),
            });
            let bound: Vec<Bound> = bound.collect();
            launch(function, one.grid, &bound, &mut self.memory)
                .map_err(|violation| misuse(format!("{violation}\n{function}")))?;
        }
        Ok(())
    }

    /// An op by the interpreter, on copies of its operands.
    fn host(
        &mut self,
        [op, node]: [NodeId; 2],
        operands: &[Operand],
        result: BufferId,
        faults: &mut Vec<Fault>,
    ) -> Result<(), DeviceError> {
        let mut graph = Graph::default();
        let (mut ids, mut inputs) = (Vec::new(), Vec::new());
        for operand in operands {
            let (size, bytes) = (operand.dtype.size(), self.memory[self.place(operand.buffer)].bytes());
            ids.push(graph.input(operand.dtype, &operand.layout.shape));
            let mut input = Vec::new();
            operand.layout.places().for_each(|place| input.extend_from_slice(&bytes[place * size..(place + 1) * size]));
            inputs.push(input);
        }
        let Node { dtype, shape, .. } = self.graph[node].clone();
        let inner = self.graph[op].op.clone();
        let id = graph.push_node(Node {
            op: inner,
            inputs: ids.into_iter().collect(),
            dtype,
            shape,
            source: Source::default(),
        });
        graph.outputs.push(id);
        let mut interpreted = interpret(&graph, &inputs).map_err(|error| misuse(error.to_string()))?;
        faults.extend(interpreted.faults.into_iter().map(|fault| Fault { node: op, ..fault }));
        let place = self.place(result);
        self.memory[place] = Memory::from_bytes(interpreted.outputs.swap_remove(0));
        Ok(())
    }
}

impl Backend for LockstepBackend {
    fn name(&self) -> String {
        "lockstep".into()
    }

    fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Buffer, DeviceError> {
        // Any byte but 0 is true; kernels know 0 and 1.
        let element = |&byte: &u8| if dtype == DType::Bool { u8::from(byte != 0) } else { byte };
        Ok(Buffer::new(HostBuffer(bytes.iter().map(element).collect())))
    }

    fn download<'a>(&'a self, buffer: &'a Buffer, len: usize) -> BoxFuture<'a, Result<Vec<u8>, DeviceError>> {
        let bytes =
            self.bytes(buffer).and_then(|bytes| bytes.get(..len).ok_or_else(|| misuse("the buffer is shorter")));
        let bytes = bytes.map(<[u8]>::to_vec);
        Box::pin(std::future::ready(bytes))
    }

    fn execute(&self, graph: &Graph, inputs: Vec<Buffer>) -> Result<Outcome, DeviceError> {
        let program = lower_with(&fornax_compile::compile(graph), graph, self.settings);
        if inputs.len() != program.inputs.len() {
            return Err(misuse(format!("the graph has {} inputs, {} were given", program.inputs.len(), inputs.len())));
        }
        let mut run = Run {
            program: &program,
            graph,
            places: vec![None; program.buffers.len()],
            memory: vec![Memory::from_bytes(vec![0; 8 * program.faults.len()])],
            faults: 0,
        };
        // Inputs that are given away may be overwritten.
        let mut given = vec![false; program.buffers.len()];
        for (input, &(buffer, len)) in inputs.iter().zip(&program.inputs) {
            let bytes = self.bytes(input)?;
            if bytes.len() != len {
                return Err(misuse(format!("an input is of {} bytes, {len} are needed", bytes.len())));
            }
            if let Some(buffer) = buffer {
                run.places[buffer.idx()] = Some(run.add(Memory::from_bytes(bytes.to_vec())));
                given[buffer.idx()] = true;
            }
        }
        let mut faults = Vec::new();
        for step in &program.steps {
            for &made in &step.makes {
                let replaced =
                    step.in_place.iter().find(|(other, _)| *other == made).map(|&(_, freed)| run.place(freed));
                let place = replaced.unwrap_or_else(|| run.add(Memory::new(program.buffers[made.idx()])));
                run.places[made.idx()] = Some(place);
            }
            run.launches(&step.launches)?;
            self.launches.fetch_add(step.launches.len() as u64, Relaxed);
            match &step.call {
                None => {}
                Some(Call::Matmul { own, .. } | Call::Conv { own, .. }) => {
                    run.launches(own)?;
                    self.launches.fetch_add(own.len() as u64, Relaxed);
                }
                Some(Call::Host { op, node, operands, result }) => {
                    run.host([*op, *node], operands, *result, &mut faults)?;
                    self.host.fetch_add(1, Relaxed);
                }
            }
            for &made in &step.makes {
                if let Some(byte) = run.memory[run.place(made)].unknown() {
                    return Err(misuse(format!("byte {byte} of buffer {} was not written", made.0)));
                }
            }
            step.frees.iter().for_each(|freed| run.places[freed.idx()] = None);
        }
        let words = run.memory[run.faults]
            .bytes()
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        faults.extend(program.faults.iter().zip(words).filter_map(|(site, word)| site.fault(word)));
        let output = |&buffer: &BufferId| Buffer::new(HostBuffer(run.memory[run.place(buffer)].bytes().to_vec()));
        Ok(Outcome { outputs: program.outputs.iter().map(output).collect(), faults })
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn memory(&self) -> Usage {
        Usage::default()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("launches", self.launches.load(Relaxed)), ("host", self.host.load(Relaxed))]
    }
}
