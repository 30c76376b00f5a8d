"""PCX 0.6.3: seconds per batch (feedforward sweep, T Adam steps on the states, one AdamW step on the weights).

The same network (784-128-...-128-10, ReLU, RMSNorm before every matrix but the first),
cross-entropy, all T steps inside one compiled scan: the fastest form that the library offers.
Arguments: depth, steps, repeats. One thread.
"""

import json
import os
import sys
import time
from itertools import pairwise

START = time.perf_counter()
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["OMP_NUM_THREADS"] = "1"
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import equinox as eqx  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402
import pcx  # noqa: E402
import pcx.functional as pxf  # noqa: E402
import pcx.nn as pxnn  # noqa: E402
import pcx.predictive_coding as pxc  # noqa: E402
import pcx.utils as pxu  # noqa: E402

from measure import in_turn  # noqa: E402

DEPTH, STEPS, REPEATS = map(int, sys.argv[1:])
BATCH, WIDTH, INPUTS, CLASSES = 128, 128, 784, 10
pcx.RKG.seed(0)


class RMSNorm(pxnn.Layer):
    def __init__(self):
        super().__init__(eqx.nn.RMSNorm, WIDTH, use_bias=False)


class Network(pxc.EnergyModule):
    def __init__(self):
        super().__init__()
        sizes = [INPUTS] + [WIDTH] * (DEPTH - 1) + [CLASSES]
        self.matrices = [pxnn.Linear(a, b, bias=False) for a, b in pairwise(sizes)]
        self.norms = [RMSNorm() for _ in range(DEPTH - 1)]
        self.vodes = [pxc.Vode() for _ in range(DEPTH - 1)] + [pxc.Vode(pxc.ce_energy)]
        self.vodes[-1].h.frozen = True

    def __call__(self, x, y):
        for layer, (matrix, vode) in enumerate(zip(self.matrices, self.vodes, strict=True)):
            if layer:
                x = self.norms[layer - 1](x)
            x = matrix(x)
            x = vode(jax.nn.relu(x) if layer < DEPTH - 1 else x)
        if y is not None:
            self.vodes[-1].set("h", y)
        return self.vodes[-1].get("u")


PER_SAMPLE = pxu.M(pxc.VodeParam | pxc.VodeParam.Cache).to((None, 0))
STATES = pxu.M_hasnot(pxc.VodeParam, frozen=True)
INIT = (pxc.STATUS.INIT, None)


@pxf.vmap(PER_SAMPLE, in_axes=(0, 0), out_axes=0)
def forward(x, y, *, model):
    return model(x, y)


@pxf.vmap(PER_SAMPLE, in_axes=(0,), out_axes=(None, 0), axis_name="batch")
def energy(x, *, model):
    prediction = model(x, None)
    return jax.lax.psum(model.energy(), "batch"), prediction


@pxf.jit()
def train(x, y, *, model, weights, states):
    with pxu.step(model, INIT, clear_params=pxc.VodeParam.Cache):
        forward(x, y, model=model)
    states.init(STATES(model))

    def step(_, x, *, model, states):
        with pxu.step(model, clear_params=pxc.VodeParam.Cache):
            _, gradient = pxf.value_and_grad(STATES.to([False, True]), has_aux=True)(energy)(x, model=model)
        states.step(model, gradient["model"])
        return x, None

    pxf.scan(step, jnp.arange(STEPS))(x, model=model, states=states)
    with pxu.step(model, clear_params=pxc.VodeParam.Cache):
        (total, _), gradient = pxf.value_and_grad(pxu.M(pxnn.LayerParam).to([False, True]), has_aux=True)(energy)(
            x, model=model
        )
    weights.step(model, gradient["model"], scale_by=1.0 / BATCH)
    states.clear()
    return total


keys = jax.random.split(jax.random.PRNGKey(0))
images = jax.random.normal(keys[0], (BATCH, INPUTS))
targets = jax.nn.one_hot(jax.random.randint(keys[1], (BATCH,), 0, CLASSES), CLASSES)
model = Network()
with pxu.step(model, INIT, clear_params=pxc.VodeParam.Cache):  # makes the states, so that one compilation suffices
    forward(jnp.zeros_like(images), None, model=model)
weights = pxu.Optim(lambda: optax.adamw(6e-5, weight_decay=1e-4), pxu.M(pxnn.LayerParam)(model))
states = pxu.Optim(lambda: optax.adam(0.005))


def batch():
    jax.block_until_ready(train(images, targets, model=model, weights=weights, states=states))
    jax.block_until_ready(model.matrices[0].nn.weight.get())


batch()
first = time.perf_counter() - START
seconds = in_turn({"peer": batch}, REPEATS)["peer"]
print(json.dumps({"first_batch": first, "seconds": seconds}))
