"""The hot path, on CPU tensors: a recording target stands where a GPU kernel would be launched."""

import threading
from dataclasses import replace

import pytest
import torch
from test_packing import make_record

from fa4_cute import binding, call, fast, native
from fa4_cute.outputs import lse_like, output_like
from fa4_cute.tensor_map import TensorMapArgs
from fa4_cute.validate import check

ARGUMENTS = (
    "Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, "
    'float? scale=None, bool enable_gqa=False, str causal_alignment="top_left"'
)
RECORD = make_record()


def encode(arguments):
    """Deterministic in all that was asked for."""
    return repr(TensorMapArgs.from_core(arguments)).encode().ljust(1024, b" ")[:128]


class Target:
    """Takes launches."""

    def __init__(self):
        self.launches = []

    def __call__(self, block, grid):
        self.launches.append((block, grid))


class Bench:
    """Operators of our schemas whose CPU kernels are the hot path; `slow` counts the calls that it passed on."""

    def __init__(self, name, **sizes):
        self.table = fast.make_calls(encode, **sizes)
        self.target, self.slow = Target(), []
        self.library = torch.library.Library(name, "DEF")
        self.library.define(f"mha({ARGUMENTS}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
        self.library.define(f"mha_with_lse({ARGUMENTS}) -> (Tensor, Tensor)", tags=(torch.Tag.pt2_compliant_tag,))
        self.mha, self.mha_with_lse = getattr(torch.ops, name).mha, getattr(torch.ops, name).mha_with_lse
        for op, with_lse in ((self.mha, False), (self.mha_with_lse, True)):
            self._register(op, with_lse)

    def _register(self, op, with_lse):
        name = op._qualified_op_name.split("::")[1]

        def cpu(keyset, query, key, value, *args, **kwargs):
            self.slow.append("CPU")
            out, lse = output_like(query, value.shape[-1]), lse_like(query)
            return (out, lse) if with_lse else out

        def autograd(keyset, *args, **kwargs):
            self.slow.append("Autograd")
            with torch._C._AutoDispatchBelowAutograd():
                return op(*args, **kwargs)

        def fake(query, key, value, *args, **kwargs):
            out = output_like(query, value.shape[-1])
            return (out, lse_like(query)) if with_lse else out

        fast.register(self.library, name, cpu, autograd, table=self.table, backend="CPU")
        torch.library.register_fake(op._qualified_op_name, fake, lib=self.library)

    def remember(self, query, key, value, grid=(4, 2, 1), **options):
        problem = check(query, key, value, **options)
        given = (
            options.get("is_causal", False),
            options.get("scale"),
            options.get("enable_gqa", False),
            options.get("causal_alignment", "top_left"),
        )
        out = output_like(query, query.shape[-1])
        values = problem_values(problem)
        return fast.put(self.table, RECORD, self.target, grid, values, (query, key, value), given, out)

    def launches(self, function):
        """(result, launches, slow calls) of a call."""
        self.target.launches.clear()
        self.slow.clear()
        result = function()
        return result, list(self.target.launches), list(self.slow)


def problem_values(problem):
    return {**call.scalar_values(problem, 0), "rows": problem.seqlen_q, "scale": problem.scale}


_count = iter(range(1000))


@pytest.fixture(params=["C++", "C++ by way of Python"], autouse=True)
def kernels(request, monkeypatch):
    """Both ways to register the hot path."""
    if request.param == "C++":
        assert native.operator() is not None, "the operators' kernels were not built for this torch"
    else:
        monkeypatch.setattr(native, "operator", lambda: None)


@pytest.fixture
def bench(kernels):
    return Bench(f"fa4_fast_{next(_count)}")


def tensors(batch=2, heads=(4, 4), lengths=(33, 50), head_dim=128, layout="bhsd", dtype=torch.bfloat16):
    def tensor(count, length):
        if layout == "bshd":
            return torch.randn(batch, length, count, head_dim).to(dtype).transpose(1, 2)
        if layout == "fused":
            return torch.randn(batch, length, 3, count, head_dim).to(dtype)[:, :, 1].transpose(1, 2)
        return torch.randn(batch, count, length, head_dim).to(dtype)

    return tensor(heads[0], lengths[0]), tensor(heads[1], lengths[1]), tensor(heads[1], lengths[1])


def expected_block(query, key, value, out, lse_address=0, **options):
    """What the launcher and the emulator get from binding.pack for the same call."""
    problem = check(query, key, value, **options)
    operands = {
        name: call.operand(t, t.data_ptr(), problem.dtype)
        for name, t in {"q": query, "k": key, "v": value, "o": out}.items()
    }
    values = {**problem_values(problem), "lse": lse_address}
    return binding.pack(RECORD, operands, values, lambda args: encode(args.core_arguments()))


@pytest.mark.parametrize("layout", ["bhsd", "bshd", "fused"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("grad_mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_known_calls_are_launched_with_the_bytes_of_the_shared_packer(bench, layout, dtype, grad_mode):
    with grad_mode():
        query, key, value = tensors(layout=layout, dtype=dtype)
        options = {"is_causal": True, "scale": 0.25, "causal_alignment": "bottom_right"}
        _, launches, slow = bench.launches(lambda: bench.mha(query, key, value, **options))
        assert not launches and slow, "nothing is known yet"
        assert bench.remember(query, key, value, **options)

        out, launches, slow = bench.launches(lambda: bench.mha(query, key, value, **options))
        assert (len(launches), slow) == (1, [])
        assert launches[0] == (expected_block(query, key, value, out, **options), (4, 2, 1))
        assert out.stride() == output_like(query, 128).stride() and out.shape == query.shape

        (out, lse), launches, slow = bench.launches(lambda: bench.mha_with_lse(query, key, value, **options))
        assert launches[0][0] == expected_block(query, key, value, out, lse.data_ptr(), **options)
        assert (lse.shape, lse.dtype, slow) == (query.shape[:-1], torch.float32, [])

        moved = tuple(t.clone() for t in (query, key, value))
        if layout != "fused":  # whose copy is dense, another call
            out, launches, slow = bench.launches(lambda: bench.mha(*moved, **options))
            assert launches[0][0] == expected_block(*moved, out, **options) and slow == []


def test_what_tells_calls_apart(bench):
    query, key, value = tensors(heads=(4, 4))
    assert bench.remember(query, key, value)
    others = {
        "causal": lambda: bench.mha(query, key, value, is_causal=True),
        "scale": lambda: bench.mha(query, key, value, scale=0.5),
        "gqa": lambda: bench.mha(query, key, value, enable_gqa=True),
        "alignment": lambda: bench.mha(query, key, value, causal_alignment="bottom_right"),
        "dropout": lambda: bench.mha(query, key, value, None, 0.5),
        "mask": lambda: bench.mha(query, key, value, torch.ones(33, 50, dtype=torch.bool)),
        "layout": lambda: bench.mha(*tensors(layout="bshd")),
        "length": lambda: bench.mha(*tensors(lengths=(33, 51))),
        "dtype": lambda: bench.mha(*tensors(dtype=torch.float16)),
        "value": lambda: bench.mha(query, key, tensors(layout="bshd")[2]),
    }
    for name, other in others.items():
        _, launches, slow = bench.launches(other)
        assert not launches and slow, name
    same = lambda: bench.mha(query, key, value, None, 0.0, False, scale=None, causal_alignment="top_left")
    assert len(bench.launches(same)[1]) == 1


def test_gradients_and_modes_take_the_long_way(bench):
    query, key, value = tensors()
    bench.remember(query, key, value)

    wanting = query.clone().requires_grad_()
    assert bench.launches(lambda: bench.mha(wanting, key, value))[2][0] == "Autograd"
    with torch.no_grad():
        assert bench.launches(lambda: bench.mha(wanting, key, value))[2] == []
    negative = torch._neg_view(query)
    assert negative.is_neg() and not bench.launches(lambda: bench.mha(negative, key, value))[0].is_neg()

    from torch._subclasses import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        fake, launches, _ = bench.launches(lambda: bench.mha(query, key, value))
    assert type(fake).__name__ == "FakeTensor" and not launches
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda q: bench.mha(q, key, value))(query)
    assert any("mha" in str(node.target) for node in traced.graph.nodes)
    functional, launches, _ = bench.launches(
        lambda: torch.func.functionalize(lambda q: bench.mha(q, key, value))(query)
    )
    assert functional.shape == query.shape
    gradient = torch.func.grad(lambda q: bench.mha(q, key, value).float().sum())
    assert "Autograd" in bench.launches(lambda: gradient(query))[2], "no gradient gets lost on the hot path"


def test_tangents_take_the_long_way(bench):
    """Forward-mode AD: a dual tensor does not require a gradient."""
    query, key, value = tensors()
    bench.remember(query, key, value)
    direct = fast.direct(with_lse=False, table=bench.table)
    options = (None, 0.0, False, None, False, "top_left")
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        for position in range(3):
            arguments = [query, key, value]
            arguments[position] = torch.autograd.forward_ad.make_dual(arguments[position], arguments[position].clone())
            assert bench.launches(lambda called=arguments: bench.mha(*called))[2][0] == "Autograd"
            assert direct(*arguments, *options) is None
    assert direct(query, key, value, *options) is not None


class Watch(torch.overrides.TorchFunctionMode):
    """Counts the functions of torch that are called."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def test_direct_calls(bench):
    """What skips the dispatcher launches the same, and gives way where the dispatcher would have had work to do."""
    direct = fast.direct(with_lse=False, table=bench.table)
    direct_with_lse = fast.direct(with_lse=True, table=bench.table)
    query, key, value = tensors()
    defaults = (None, 0.0, False, None, False, "top_left")
    assert direct(query, key, value, *defaults) is None, "nothing is known yet"
    bench.remember(query, key, value)
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            out, launches, slow = bench.launches(lambda: direct(query, key, value, *defaults))
            assert launches == [(expected_block(query, key, value, out), (4, 2, 1))] and not slow
    (out, lse), launches, _ = bench.launches(lambda: direct_with_lse(query, key, value, *defaults))
    assert launches[0][0] == expected_block(query, key, value, out, lse.data_ptr())

    def served(*arguments):
        result, launches, _ = bench.launches(lambda: direct(*arguments))
        assert (result is None) == (not launches)
        return result is not None

    mask = torch.ones(33, 50, dtype=torch.bool)
    for others in (
        (mask, 0.0, False, None, False, "top_left"),
        (None, 0.1, False, None, False, "top_left"),
        (None, 0.0, True, None, False, "top_left"),
        (None, 0.0, False, 1.0, False, "top_left"),
        (None, 0.0, False, None, True, "top_left"),
        (None, 0.0, False, None, False, "bottom_right"),
        (None, 0.0, 1, None, False, "top_left"),
        (None, 0.0, False, None, False, None),
        (None, 0.0, False, None, False),
    ):
        assert not served(query, key, value, *others), others
    assert not served(query.clone().requires_grad_(), key, value, *defaults)
    assert not served(torch.nn.Parameter(query, requires_grad=False), key, value, *defaults)
    half = tensors(dtype=torch.float16)
    bench.remember(*half)
    assert served(*half, *defaults)
    imaginary = torch.view_as_complex(torch.stack((half[0], half[0]), -1)).conj().imag  # no kernel has run for the sign
    assert imaginary.is_neg() and not served(imaginary, *half[1:], *defaults)
    assert not served(half[0], *half[1:2], torch._neg_view(half[2]), *defaults)
    assert not served("query", key, value, *defaults)
    assert not served(torch._to_functional_tensor(query), key, value, *defaults)
    assert not served(query.to("meta"), key, value, *defaults)

    def inside(function):
        """Whether a call is served inside a transform."""
        seen = []
        function(lambda q: (seen.append(served(query, key, value, *defaults)), q)[1])
        return seen[0]

    assert inside(lambda call: call(query))
    assert not inside(lambda call: torch.func.vmap(call)(query))
    assert not inside(lambda call: torch.func.grad(lambda q: call(q).float().sum())(query))
    assert not inside(lambda call: torch.func.functionalize(call)(query))
    assert not inside(lambda call: torch.fx.experimental.proxy_tensor.make_fx(call)(query))
    assert not inside(lambda call: torch.jit.trace(call, query, check_trace=False))
    with torch.autocast("cpu"):
        assert not served(query, key, value, *defaults)
    with Watch():
        assert not served(query, key, value, *defaults)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert not served(query, key, value, *defaults)
    assert served(query, key, value, *defaults)


def test_calls_that_cannot_be_known(bench):
    query, key, value = tensors()
    empty = tensors(lengths=(33, 0))
    assert not bench.remember(*empty)
    storage = torch.zeros(query.numel() + 1, dtype=torch.bfloat16)
    misaligned = storage[1:].view(query.shape)
    assert bench.remember(query, key, value)
    assert not bench.launches(lambda: bench.mha(misaligned, key, value))[1]
    assert not bench.remember(misaligned, key, value)
    with pytest.raises(ValueError, match="packer: wanted the tensors"):
        record = replace(RECORD, params=RECORD.params[:2])
        fast.put(bench.table, record, bench.target, (1, 1, 1), {}, (query, key, value), (False, None, False, ""), query)


def test_errors_of_a_launch_come_through(bench):
    query, key, value = tensors()

    def refuse(block, grid):
        raise LookupError("no such device")

    bench.target = refuse
    bench.remember(query, key, value)
    with pytest.raises(LookupError, match="no such device"):
        bench.mha(query, key, value)
    wrong = tensors(lengths=(33, 60))
    bench.remember(*wrong, grid=(1, 1, 1))
    with pytest.raises(LookupError):
        bench.mha(*wrong)


def test_errors_of_a_launch_come_through_from_threads_of_torchs_own(bench):
    """Which have no Python error indicator while they do not hold the GIL."""
    query, key, value = tensors()

    def refuse(block, grid):
        raise LookupError("no such device")

    bench.target = refuse
    bench.remember(query, key, value)
    name = bench.library.ns
    traced = torch.jit.trace(lambda *t: getattr(torch.ops, name).mha(*t), tensors(lengths=(34, 50)), check_trace=False)

    @torch.jit.script
    def forked(query, key, value):
        return torch.jit.wait(torch.jit.fork(traced, query, key, value))

    with pytest.raises(RuntimeError, match="no such device"):
        forked(query, key, value)


def test_tensor_maps_are_kept_up_to_the_bound():
    bench = Bench(f"fa4_fast_{next(_count)}", encodings=6)
    query, key, value = tensors()
    bench.remember(query, key, value)
    out = bench.mha(query, key, value)
    assert bench.table.encodings == {"hits": 0, "misses": 4, "evictions": 0, "entries": 4}
    again = bench.mha(query, key, value)  # `out` is alive: another output, the other three are known
    assert bench.table.encodings == {"hits": 3, "misses": 5, "evictions": 0, "entries": 5}
    moved = query.clone(), key.clone(), value.clone()
    third = bench.mha(*moved)
    assert bench.table.encodings == {"hits": 3, "misses": 9, "evictions": 3, "entries": 6}
    bench.mha(*moved)  # the least recently used went, so these are there
    assert bench.table.encodings == {"hits": 6, "misses": 10, "evictions": 4, "entries": 6}
    assert out.data_ptr() != again.data_ptr() != third.data_ptr()
    bench.table.clear()
    assert bench.table.encodings["entries"] == 0 == len(bench.table)


def test_known_calls_are_bounded():
    bench = Bench(f"fa4_fast_{next(_count)}", capacity=3)
    shapes = [tensors(lengths=(33, length)) for length in (8, 16, 24, 32)]
    for three in shapes:
        bench.remember(*three)
    assert len(bench.table) == 3
    assert [len(bench.launches(lambda three=three: bench.mha(*three))[1]) for three in shapes] == [0, 1, 1, 1]
    bench.remember(*shapes[0])  # drops the one not asked for longest
    assert [len(bench.launches(lambda three=three: bench.mha(*three))[1]) for three in shapes] == [1, 0, 1, 1]


def test_threads(bench):
    """Each thread's launches carry its own tensors, however calls and evictions interleave."""
    bench = Bench(f"fa4_fast_{next(_count)}", capacity=2, encodings=5)
    wrong = []

    def work(length):
        query, key, value = tensors(batch=1, lengths=(length, length))
        for _ in range(200):
            bench.remember(query, key, value, grid=(length, 1, 1))
            out = bench.mha(query, key, value)
            block = expected_block(query, key, value, out)
            if (block, (length, 1, 1)) not in bench.target.launches and not bench.slow:
                wrong.append(length)

    threads = [threading.Thread(target=work, args=(8 * (i + 1),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and bench.target.launches


def test_op_falls_back_to_python_without_the_c_functions(monkeypatch):
    assert fast.make_calls(encode).reads_tensors
    registered = {}

    class Library:
        def impl(self, name, kernel, key, *, with_keyset):
            registered[key] = kernel

    def missing():
        raise ImportError("not built")

    monkeypatch.setattr(fast, "calls", missing)
    cuda, autograd = lambda *args: None, lambda *args: None
    fast.register(Library(), "mha", cuda, autograd)
    assert registered == {"CUDA": cuda, "AutogradCUDA": autograd}
