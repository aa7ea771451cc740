"""copyright.py amd64|arm64 CRATE...: the copyright file of a package, with the licences of every crate that is
linked into these of ours (what cargo resolves for that target, build tools left out)."""

import json
import pathlib
import subprocess
import sys

TRIPLES = {"amd64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}
NAMES = ("license", "licence", "copying", "copyright", "notice", "unlicense")


def cargo(*words):
    run = subprocess.run(["cargo", *words], check=True, stdout=subprocess.PIPE, text=True)
    return run.stdout


def crates(triple, ours):
    """Linked crates as name -> version -> package, ours left out."""
    chosen = [word for name in ours for word in ("-p", name)]
    tree = cargo("tree", "--locked", *chosen, "-e", "no-dev,no-build,no-proc-macro",
                 "--target", triple, "--prefix", "none", "-f", "{p}")
    linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}
    metadata = cargo("metadata", "--locked", "--format-version", "1", "--filter-platform", triple)
    for package in json.loads(metadata)["packages"]:
        if package["source"] and (package["name"], "v" + package["version"]) in linked:
            yield package


def main():
    arch, *ours = sys.argv[1:]
    print((pathlib.Path("LICENSE-MIT")).read_text().strip())
    print("\nOr, at your choice, the Apache License, Version 2.0, which on Debian systems is in")
    print("/usr/share/common-licenses/Apache-2.0.")
    what = "The library is" if ours == ["ggml-rocket"] else "The programs are"
    print(f"\n{what} linked with the Rust standard library (MIT or Apache-2.0, the Rust")
    print("project's developers) and with the crates below, each under its own licence.")
    texts = {}
    packages = sorted(crates(TRIPLES[arch], ours), key=lambda p: (p["name"], p["version"]))
    if not packages:
        sys.exit("copyright.py: cargo names no crate that is linked in")
    for package in packages:
        if not package["license"]:
            sys.exit(f"copyright.py: {package['name']} names no licence")
        folder = pathlib.Path(package["manifest_path"]).parent
        files = sorted(f for f in folder.iterdir() if f.is_file() and f.name.lower().startswith(NAMES))
        own = [f.read_text(errors="replace").strip() for f in files]
        # One copy of a text that several crates share.
        for text in own:
            texts.setdefault(text, []).append(f"{package['name']} {package['version']}")
        authors = ", ".join(a.split("<")[0].strip() for a in package["authors"])
        print(f"\n{package['name']} {package['version']}: {package['license']}"
              + (f"\n  by {authors}" if authors else "")
              + ("" if own else "\n  (its source brings no licence file)"))
    for text, users in texts.items():
        print("\n" + "-" * 78 + "\n" + ", ".join(users) + ":\n\n" + text)


main()
