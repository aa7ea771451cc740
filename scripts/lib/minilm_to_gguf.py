"""all-MiniLM-L6-v2 to GGUF, matrices as F16. usage: minilm_to_gguf.py FOLDER OUT.gguf

FOLDER holds config.json, vocab.txt and model.safetensors. Needs numpy, gguf and safetensors.
"""

import json
import pathlib
import sys

import gguf
import numpy
from safetensors.numpy import load_file

EMBEDDINGS = {
    "word_embeddings": "token_embd",
    "position_embeddings": "position_embd",
    "token_type_embeddings": "token_types",
    "LayerNorm": "token_embd_norm",
}
BLOCK = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def renamed(name):
    """llama.cpp's name, or None for what it has no use for."""
    where, kind = name.rsplit(".", 1)
    if where.startswith("pooler") or kind == "position_ids":
        return None
    if where.startswith("embeddings."):
        return f"{EMBEDDINGS[where.split('.', 1)[1]]}.{kind}"
    _, _, block, part = where.split(".", 3)  # encoder.layer.BLOCK.PART
    return f"blk.{block}.{BLOCK[part]}.{kind}"


def add_settings(to, config):
    to.add_name("all-MiniLM-L6-v2")
    to.add_context_length(config["max_position_embeddings"])
    to.add_embedding_length(config["hidden_size"])
    to.add_feed_forward_length(config["intermediate_size"])
    to.add_block_count(config["num_hidden_layers"])
    to.add_head_count(config["num_attention_heads"])
    to.add_layer_norm_eps(config["layer_norm_eps"])
    to.add_token_type_count(config["type_vocab_size"])
    to.add_causal_attention(False)
    to.add_pooling_type(gguf.PoolingType.MEAN)
    to.add_file_type(gguf.LlamaFileType.MOSTLY_F16)


def add_vocabulary(to, words):
    """WordPiece as llama.cpp wants it: a word's start is marked, not its continuation."""

    def token(word):
        if word.startswith("[") and word.endswith("]") and len(word) > 2:
            return word, gguf.TokenType.CONTROL
        if word.startswith("##"):
            return word[2:], gguf.TokenType.NORMAL
        return "\u2581" + word, gguf.TokenType.NORMAL

    tokens, kinds = zip(*map(token, words))
    to.add_tokenizer_model("bert")
    to.add_tokenizer_pre("default")
    to.add_token_list(list(tokens))
    to.add_token_types([int(kind) for kind in kinds])
    to.add_unk_token_id(words.index("[UNK]"))
    to.add_sep_token_id(words.index("[SEP]"))
    to.add_eos_token_id(words.index("[SEP]"))
    to.add_pad_token_id(words.index("[PAD]"))
    to.add_mask_token_id(words.index("[MASK]"))
    to.add_bos_token_id(words.index("[CLS]"))


def main():
    folder, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    to = gguf.GGUFWriter(out, "bert")
    add_settings(to, json.loads((folder / "config.json").read_text()))
    add_vocabulary(to, (folder / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n"))
    for name, tensor in sorted(load_file(folder / "model.safetensors").items()):
        name = renamed(name)
        if name is None:
            continue
        # The two small tables are added, not multiplied with: llama.cpp reads them as F32.
        matrix = tensor.ndim == 2 and not name.startswith(("position_embd", "token_types"))
        to.add_tensor(name, tensor.astype(numpy.float16 if matrix else numpy.float32))
    to.write_header_to_file()
    to.write_kv_data_to_file()
    to.write_tensors_to_file()
    to.close()


if __name__ == "__main__":
    main()
