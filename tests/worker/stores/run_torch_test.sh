#!/bin/sh
# Runs a test with a Python that has torch.
#
#     run_torch_test.sh PYTHON TEST ARGUMENTS...
#
# A machine without it says SKIPPED; where everything must be there (CI), that is a failure.
python=$1
shift
if why=$("$python" -c 'import torch' 2>&1); then
    exec "$python" "$@"
fi
echo "SKIPPED: $python has no torch: $(echo "$why" | tail -n 1)"
case $CI in
    "" | 0 | false) exit 77 ;;  # as tests/support/skip.py
    *) exit 1 ;;
esac
