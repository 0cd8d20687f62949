"""Makes the files of this folder. Needs torch 2.15, numpy 2.4, gguf 0.19 (for the quantized values of `quants.gguf`).

python make.py
"""

import collections

import gguf
import numpy as np
import torch


def tensors():
    x = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    tied = torch.tensor([[1.5, -2.0], [0.25, 8.0]])
    return collections.OrderedDict(
        whole=x,
        transposed=x.transpose(0, 2),
        sliced=x[:, 1:, ::2],
        expanded=torch.tensor([1.0, 2.0]).reshape(2, 1).expand(2, 3),
        tied=tied,
        tied_too=tied,
        scalar=torch.tensor(0.5),
        empty=torch.zeros(3, 0, 2),
        parameter=torch.nn.Parameter(torch.tensor([3.0])),
        f16=torch.tensor([1.5, -65504.0], dtype=torch.float16),
        bf16=torch.tensor([1.5, -3e38], dtype=torch.bfloat16),
        f64=torch.tensor([0.1], dtype=torch.float64),
        i64=torch.tensor([-(2**63), 2**63 - 1]),
        i32=torch.tensor([-7], dtype=torch.int32),
        i16=torch.tensor([-8], dtype=torch.int16),
        i8=torch.tensor([-9], dtype=torch.int8),
        u8=torch.tensor([255], dtype=torch.uint8),
        u16=torch.tensor([65535], dtype=torch.uint16),
        u32=torch.tensor([2**32 - 1], dtype=torch.uint32),
        u64=torch.tensor([2**63 - 1], dtype=torch.uint64),
        bool=torch.tensor([True, False, True]),
    )


def trained():
    """A model and its optimizer, as a training script saves them."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "best": None, "name": "run"}


def quants(path):
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "test")
    writer.add_uint32("test.count", 7)
    writer.add_array("test.tokens", ["a", "b", "ü"])
    writer.add_float32("test.eps", 0.5)
    writer.add_bool("test.flag", True)
    writer.add_tensor("f32", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("f16", np.arange(4, dtype=np.float16).reshape(4, 1))
    expected = {}
    kinds = gguf.GGMLQuantizationType
    for kind in [kinds.Q4_0, kinds.Q4_1, kinds.Q5_0, kinds.Q5_1, kinds.Q8_0, kinds.Q2_K, kinds.Q3_K, kinds.Q4_K, kinds.Q5_K, kinds.Q6_K]:
        values, size = gguf.GGML_QUANT_SIZES[kind]
        # Random blocks; scales are halves near 0.01, so that no value is infinite.
        blocks = random.integers(0, 256, (2, size), dtype=np.uint8)
        scale = np.array([0.0123, -0.0071], dtype=np.float16).view(np.uint8)
        at = {kinds.Q2_K: [80, 82], kinds.Q3_K: [108], kinds.Q6_K: [208], kinds.Q4_0: [0], kinds.Q5_0: [0], kinds.Q8_0: [0]}
        for i, start in enumerate(at.get(kind, [0, 2])):
            blocks[:, start : start + 2] = scale[2 * i : 2 * i + 2]
        writer.add_tensor(kind.name, blocks, raw_dtype=kind)
        expected[kind.name] = gguf.quants.dequantize(blocks, kind).astype(np.float32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    np.savez_compressed("quants.npz", **expected)


torch.save(tensors(), "tensors.pt")
torch.save(tensors(), "tensors.legacy.pt", _use_new_zipfile_serialization=False)
torch.save(trained(), "trained.pt")
torch.save(trained(), "trained.legacy.pt", _use_new_zipfile_serialization=False)
quants("quants.gguf")
np.save("fortran.npy", np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)))
np.savez("plain.npz", a=np.arange(6, dtype=np.int16).reshape(2, 3), b=np.array(True), c=np.zeros((0, 2), np.float16))
