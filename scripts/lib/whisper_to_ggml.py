"""Whisper in CTranslate2's format (F16) to whisper.cpp's. usage: whisper_to_ggml.py MODEL.bin HEADER.bin OUT.bin

HEADER.bin is any whisper.cpp file of the same size of model: its settings, mel filters and vocabulary are taken.
Needs numpy.
"""

import struct
import sys

import numpy

MAGIC = 0x67676D6C
SETTINGS = 11  # int32 after the magic: vocabulary, audio context/state/heads/layers, text the same, mels, type
F32, F16 = 0, 1
# CTranslate2's numbers of element types.
ELEMENTS = {0: numpy.float32, 4: numpy.float16}


class Reader:
    """Little-endian fields, one after another."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 0

    def numbers(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def number(self, form):
        return self.numbers(form)[0]

    def skip(self, count):
        self.at += count
        return self.data[self.at - count : self.at]

    def text(self):
        return self.skip(self.number("H")).rstrip(b"\0").decode()


def read_weights(path):
    """Every float tensor by name: version, kind of model, revision, count; then name, extents, type, bytes."""
    r = Reader(path)
    r.number("I")
    kind = r.text()
    if kind != "WhisperSpec":
        sys.exit(f"{path} holds a {kind}, not a WhisperSpec")
    r.number("I")
    tensors = {}
    for _ in range(r.number("I")):
        name = r.text()
        extents = r.numbers(f"{r.number('B')}I")
        element, size = r.number("B"), r.number("I")
        raw = r.skip(size)
        if element in ELEMENTS:
            tensors[name] = numpy.frombuffer(raw, ELEMENTS[element]).reshape(extents)
    return tensors


def read_header(path):
    """The settings, and the bytes after them up to the first tensor."""
    r = Reader(path)
    if r.number("I") != MAGIC:
        sys.exit(f"{path} is no whisper.cpp model")
    settings = list(r.numbers(f"{SETTINGS}i"))
    start = r.at
    mels, bins = r.numbers("2i")
    r.skip(4 * mels * bins)
    for _ in range(r.number("i")):
        r.skip(r.number("I"))
    return settings, r.data[start : r.at]


def renamed(have, layers):
    """(whisper.cpp's name, tensor) for every tensor of both halves."""

    def norm(to, source):
        yield f"{to}.weight", have[f"{source}/gamma"]
        yield f"{to}.bias", have[f"{source}/beta"]

    def linear(to, source):
        yield f"{to}.weight", have[f"{source}/weight"]
        yield f"{to}.bias", have[f"{source}/bias"]

    def fused(to, source, parts):
        """One matrix of several projections; whisper.cpp's key has no bias."""
        weights = numpy.split(have[f"{source}/weight"], len(parts))
        biases = numpy.split(have[f"{source}/bias"], len(parts))
        for part, weight, bias in zip(parts, weights, biases):
            yield f"{to}.{part}.weight", weight
            if part != "key":
                yield f"{to}.{part}.bias", bias
            elif bias.any():
                sys.exit(f"{source}: the key has a bias, which whisper.cpp cannot hold")

    for half, count in layers.items():
        yield f"{half}.positional_embedding", have[f"{half}/position_encodings/encodings"]
        if half == "encoder":
            yield from linear("encoder.conv1", "encoder/conv1")
            yield from linear("encoder.conv2", "encoder/conv2")
        else:
            yield "decoder.token_embedding.weight", have["decoder/embeddings/weight"]
        for i in range(count):
            to, source = f"{half}.blocks.{i}", f"{half}/layer_{i}"
            yield from norm(f"{to}.attn_ln", f"{source}/self_attention/layer_norm")
            yield from fused(f"{to}.attn", f"{source}/self_attention/linear_0", ["query", "key", "value"])
            yield from linear(f"{to}.attn.out", f"{source}/self_attention/linear_1")
            if half == "decoder":
                yield from norm(f"{to}.cross_attn_ln", f"{source}/attention/layer_norm")
                yield from linear(f"{to}.cross_attn.query", f"{source}/attention/linear_0")
                yield from fused(f"{to}.cross_attn", f"{source}/attention/linear_1", ["key", "value"])
                yield from linear(f"{to}.cross_attn.out", f"{source}/attention/linear_2")
            yield from norm(f"{to}.mlp_ln", f"{source}/ffn/layer_norm")
            yield from linear(f"{to}.mlp.0", f"{source}/ffn/linear_0")
            yield from linear(f"{to}.mlp.2", f"{source}/ffn/linear_1")
        yield from norm("encoder.ln_post" if half == "encoder" else "decoder.ln", f"{half}/layer_norm")


def write_tensor(out, name, tensor):
    """Matrices and kernels as F16, the rest as F32; extents fastest first."""
    if name in ("encoder.conv1.bias", "encoder.conv2.bias"):
        tensor = tensor.reshape(-1, 1)
    half = tensor.ndim >= 2 and name.endswith(".weight")
    text = name.encode()
    out.write(struct.pack("<3i", tensor.ndim, len(text), F16 if half else F32))
    out.write(struct.pack(f"<{tensor.ndim}i", *reversed(tensor.shape)))
    out.write(text)
    out.write(numpy.ascontiguousarray(tensor, numpy.float16 if half else numpy.float32).tobytes())


def main():
    model, header, to = sys.argv[1:]
    have = read_weights(model)
    settings, middle = read_header(header)
    if (settings[0], settings[2]) != have["decoder/embeddings/weight"].shape:
        sys.exit(f"{header} is of another size than {model}")
    settings[10] = F16
    with open(to, "wb") as out:
        out.write(struct.pack(f"<I{SETTINGS}i", MAGIC, *settings))
        out.write(middle)
        for name, tensor in renamed(have, {"encoder": settings[4], "decoder": settings[8]}):
            write_tensor(out, name, tensor)


if __name__ == "__main__":
    main()
