"""A program for TensorFlow on many hosts: MultiWorkerMirroredStrategy, by TF_CONFIG alone."""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank, size = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
with strategy.scope():
    weight = tf.Variable(1.0, aggregation=tf.VariableAggregation.MEAN)


@tf.function
def step():
    """Adds the mean of the ranks' numbers to the weight; their sum."""
    def of_replica():
        context = tf.distribute.get_replica_context()
        total = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(float(rank + 1)))
        weight.assign_add(float(rank + 1))
        return total
    return strategy.run(of_replica)


total = strategy.experimental_local_results(step())[0].numpy()
assert weight.numpy() == 1.0 + total / size, weight
chief = "chief" if strategy.extended._is_chief else "worker"
print(f"tensorflow rank {rank} of {size}, {chief}, sum {total:.0f}", flush=True)
