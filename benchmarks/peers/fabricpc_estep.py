"""FabricPC 0.6.0: seconds per batch (feedforward sweep, T Euler steps on the states, one AdamW step on weights).

The library has neither Adam on the states nor RMSNorm, so it does less than ours: 784-128-...-128-10 with ReLU
and cross-entropy, by its own compiled training step. Arguments: depth, steps, repeats. One thread.
"""

import json
import os
import sys
import time
from itertools import pairwise

START = time.perf_counter()
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax  # noqa: E402
import optax  # noqa: E402
from fabricpc.core.activations import ReLUActivation, SoftmaxActivation  # noqa: E402
from fabricpc.core.energy import CrossEntropyEnergy  # noqa: E402
from fabricpc.core.inference import InferenceSGD  # noqa: E402
from fabricpc.core.topology import Edge  # noqa: E402
from fabricpc.graph_assembly import TaskMap, graph  # noqa: E402
from fabricpc.graph_initialization import initialize_params  # noqa: E402
from fabricpc.graph_initialization.state_initializer import FeedforwardStateInit  # noqa: E402
from fabricpc.nodes import IdentityNode, Linear  # noqa: E402
from fabricpc.training import make_train_step  # noqa: E402

from measure import in_turn  # noqa: E402

DEPTH, STEPS, REPEATS = map(int, sys.argv[1:])
BATCH, WIDTH, INPUTS, CLASSES = 128, 128, 784, 10

layers = [IdentityNode(shape=(INPUTS,), name="layer0")]
layers += [Linear(shape=(WIDTH,), activation=ReLUActivation(), name=f"layer{i}") for i in range(1, DEPTH)]
layers.append(
    Linear(shape=(CLASSES,), activation=SoftmaxActivation(), energy=CrossEntropyEnergy(), name=f"layer{DEPTH}")
)
network = graph(
    nodes=layers,
    edges=[Edge(source=below, target=above.slot("in")) for below, above in pairwise(layers)],
    task_map=TaskMap(x=layers[0], y=layers[-1]),
    inference=InferenceSGD(eta_infer=0.1, infer_steps=STEPS),
    graph_state_initializer=FeedforwardStateInit(),
)
keys = jax.random.split(jax.random.PRNGKey(0), 4)
weights = initialize_params(network, keys[0])
adamw = optax.adamw(6e-5, weight_decay=1e-4)
moments = adamw.init(weights)
labels = jax.random.randint(keys[2], (BATCH,), 0, CLASSES)
images = {"x": jax.random.normal(keys[1], (BATCH, INPUTS)), "y": jax.nn.one_hot(labels, CLASSES)}
train = make_train_step(network, adamw)


def batch():
    global weights, moments
    weights, moments, *_ = jax.block_until_ready(train(weights, moments, images, keys[3]))


batch()
first = time.perf_counter() - START
seconds = in_turn({"peer": batch}, REPEATS)["peer"]
print(json.dumps({"first_batch": first, "seconds": seconds}))
