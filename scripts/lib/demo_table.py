"""The demo's table and its gates. usage: demo_table.py OUT_DIR MODEL_NAME HOST_WORDS

OUT_DIR holds what scripts/demo let the host's tools write. Standard library only.
Exit status 1 if a gate fails.
"""

import json
import pathlib
import re
import sys

KLD_LIMIT = 2e-4  # mean KL divergence from the CPU's logits
TOP_LIMIT = 99.0  # same most likely token, %
PPL_LIMIT = 1e-3  # relative difference of the final perplexities
SHARE_LIMIT = 99.0  # prefill multiply-accumulates on the NPU, %
CONTROL = 10.0  # Q8_0's divergence must be at least this many times ours

NUMBER = r"(-?[0-9.]+(?:e-?[0-9]+)?|-?nan|inf)"


def read(path):
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def find(pattern, text):
    """The last match as a number, or None."""
    hits = re.findall(pattern, text)
    try:
        return float(hits[-1]) if hits else None
    except ValueError:
        return None


def divergence(text):
    """Mean KLD and same-top-1 of `llama-perplexity --kl-divergence`."""
    return find(r"Mean\s+KLD:\s+" + NUMBER, text), find(r"Same top p:\s+" + NUMBER, text)


def final_ppl(text):
    return find(r"Final estimate: PPL = " + NUMBER, text)


def listed_macs(text):
    """(K, N, M) of every MUL_MAT with a weight, from llama-eval-callback's own listing."""
    op = re.compile(r" MUL_MAT\((\S*\.weight)\{(\d+), (\d+), 1, 1\}, [^{]*\{(\d+), (\d+), (\d+), (\d+)\}")
    return [(int(k), int(n), int(m) * int(a) * int(b)) for _, k, n, _, m, a, b in op.findall(text)]


def report(path):
    """The plugin's own report; every key may be missing."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def useful_macs(rep):
    """What the board executed for the listed ops, by its registers, less the plan's padding."""
    ran = [o["engine"] for o in rep.get("ops") or [] if "engine" in o]
    return sum(e["board"]["macs"] - e["padding_macs"] for e in ran)


def words(rep):
    """Why ops stayed on the CPU: one line a reason and weight."""
    lines = [f"{name}: {n} redone" for name, n in sorted((rep.get("redos") or {}).items())]
    for r in rep.get("reasons") or []:
        lines.append(f"{r['reason']}: {r['weight_type']} weights of {r['n']} x {r['k']}, {r['sentence']}")
    return lines


def board_time(rep):
    """Milliseconds of the whole run on an RK3588 at 600 MHz, its three cores evenly loaded."""
    ns = (rep.get("board") or {}).get("modelled_core_ns")
    return "not there" if ns is None else f"{ns / 3 / 1e6:,.0f} ms at 600 MHz, host's share not counted"


def show(value, form="{:.6f}"):
    return "not there" if value is None else form.format(value)


def main():
    out, model, host = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    prompt = report(out / "npu-completion.json")
    text = report(out / "npu-kl.json")
    cpu_log, npu_log = read(out / "cpu-completion.err"), read(out / "npu-completion.err")
    tokens = find(r"prompt eval time =.*/\s*(\d+) tokens", cpu_log)
    listing = listed_macs(read(out / "cpu-ops.txt"))
    total = sum(k * n * m for k, n, m in listing)
    on_npu = useful_macs(prompt)
    board = prompt.get("board") or {}
    share = 100.0 * on_npu / total if total else None
    kld, top = divergence(read(out / "npu-kl.txt"))
    q8_kld, q8_top = divergence(read(out / "cpu-q8-kl.txt"))
    cpu_ppl, npu_ppl = final_ppl(read(out / "cpu-ppl.txt")), final_ppl(read(out / "npu-ppl.txt"))
    ratio = npu_ppl / cpu_ppl if cpu_ppl and npu_ppl else None

    rows = [
        ("model", model),
        ("host", host),
        ("prompt tokens", show(tokens, "{:.0f}")),
        ("prefill MACs in the host's op list", f"{total:,} in {len(listing)} matmuls"),
        ("  of these on the NPU", f"{on_npu:,} ({show(share, '{:.2f} %')}), by executed registers"),
        ("MACs executed, padding included", f"{board.get('macs', 0):,} in {board.get('tasks', 0):,} tasks, {board.get('jobs', 0):,} jobs, {board.get('submits', 0):,} submits"),
        ("routes", ", ".join(f"{k} {v}" for k, v in sorted((prompt.get("routes") or {}).items()))),
    ]
    lines = words(prompt) or ["none: only single rows (decode, and the last layer's cut) stayed there"]
    rows += [("left on the CPU" if i == 0 else "", line) for i, line in enumerate(lines)]
    rows += [
        ("perplexity, CPU", show(cpu_ppl, "{:.4f}")),
        ("perplexity, NPU", f"{show(npu_ppl, '{:.4f}')} (ratio {show(ratio)})"),
        ("mean KLD, NPU against CPU", show(kld)),
        ("mean KLD, Q8_0 against F16 (control)", show(q8_kld)),
        ("same top-1, NPU / Q8_0", f"{show(top, '{:.3f} %')} / {show(q8_top, '{:.3f} %')}"),
        ("NPU time of this prefill, modelled", board_time(prompt)),
        ("  and of the text, modelled", board_time(text)),
    ]
    speed = [find(r"prompt eval time =.*?([0-9.]+) tokens per second", log) for log in (cpu_log, npu_log)]
    rows.append(("prefill on this machine, CPU / simulated", " / ".join(show(s, "{:.1f} t/s") for s in speed)))

    width = max(len(a) for a, _ in rows) + 2
    print()
    for a, b in rows:
        print(f"{a:<{width}}{b}")

    gates = [
        ("prompt and text both ran on the NPU", on_npu > 0 and useful_macs(text) > 0),
        (f"share of prefill MACs >= {SHARE_LIMIT} %", share is not None and SHARE_LIMIT <= share <= 100.0),
        (f"mean KLD <= {KLD_LIMIT}", kld is not None and kld <= KLD_LIMIT),
        (f"same top-1 >= {TOP_LIMIT} %", top is not None and top >= TOP_LIMIT),
        (f"perplexity within {100 * PPL_LIMIT} %", ratio is not None and abs(ratio - 1) <= PPL_LIMIT),
        (f"control: Q8_0's KLD >= {CONTROL:.0f} x ours", kld is not None and q8_kld is not None and q8_kld > 0 and q8_kld >= CONTROL * kld),
    ]
    print()
    for name, good in gates:
        print(f"  {'pass' if good else 'FAIL'}  {name}")
    sys.exit(0 if all(good for _, good in gates) else 1)


if __name__ == "__main__":
    main()
