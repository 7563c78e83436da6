"""A program for MXNet with kvstore dist_sync; servers and the scheduler do not get past the import."""
import os

import mxnet as mx

store = mx.kv.create("dist_sync")
store.init("sum", mx.nd.zeros(2))
store.push("sum", mx.nd.ones(2) * (store.rank + 1))
total = mx.nd.zeros(2)
store.pull("sum", out=total)
print(f"mxnet worker {os.environ['DMLC_WORKER_ID']} of {store.num_workers}, "
      f"sum {total.asnumpy()[0]:.0f}", flush=True)
