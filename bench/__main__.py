"""`make bench`: which programs there are."""

from __future__ import annotations

_PROGRAMS = """\
Each benchmark is a program; run one with `python -m bench.NAME --help`:

  end_to_end   prefill, decode, decode at depth and many streams, side by side with llama.cpp
  tables       the table of minfer-run bench and that of llama-bench for the same tests
  speculation  --spec ngram beside decoding without it: copy-editing and open chat
  kernels      multiply-adds per cycle and GB/s of the matrix kernels beside the read bandwidth
  serve        streams over HTTP: tokens per second and time to first token, side by side; gaps (--pace)
  fresh        a fresh process that makes one token: wall time and peak memory, side by side
  download     a file from loopback, hashed and fsynced, side by side with curl
  store        resolving and listing among 1,000 cached models, in the process and through the daemon
Set LLAMA_CPP_BIN to the folder of a natively built llama.cpp; without it only minfer is measured.
"""

if __name__ == "__main__":
    print(_PROGRAMS)
