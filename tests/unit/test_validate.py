"""Each message names the argument, what came and what is wanted."""

import math

import pytest
import torch

from fa4_cute.validate import check


def tensor(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype)


Q, K = tensor(2, 4, 5, 64), tensor(2, 4, 7, 64)

BAD = [
    ((torch.zeros(4, 5, 64), K, K), {}, ValueError, "query: got 3 dimensions, wanted 4"),
    ((Q, K.half(), K), {}, ValueError, "key: got dtype torch.float16, wanted the query's torch.bfloat16"),
    ((Q, K, K.to("meta")), {}, ValueError, "value: got device meta"),
    ((Q, K, "v"), {}, TypeError, "value: got str, wanted a torch.Tensor"),
    ((Q.int(), K.int(), K.int()), {}, TypeError, "query: got dtype torch.int32"),
    ((Q, tensor(3, 4, 7, 64), K), {}, ValueError, "key: got batch 3, wanted the query's 2"),
    ((Q, tensor(2, 4, 7, 32), K), {}, ValueError, "key: got head_dim 32, wanted the query's 64"),
    ((Q, K, tensor(2, 4, 8, 64)), {}, ValueError, "value: got length 8, wanted the key's 7"),
    ((Q, tensor(2, 2, 7, 64), tensor(2, 2, 7, 64)), {}, ValueError, "enable_gqa=True"),
    ((Q, tensor(2, 3, 7, 64), tensor(2, 3, 7, 64)), {"enable_gqa": True}, ValueError, "a number that divides"),
    ((Q, K, K), {"causal_alignment": "left"}, ValueError, "causal_alignment: got 'left'"),
    ((Q, K, K), {"dropout_p": 1.5}, ValueError, "dropout_p: got 1.5"),
    ((Q, K, K), {"scale": math.nan}, ValueError, "scale: got nan"),
    ((Q, K, K, tensor(5, 7)), {}, NotImplementedError, "attn_mask"),
    ((Q, K, K), {"dropout_p": 0.1}, NotImplementedError, "dropout_p: got 0.1"),
    ((Q.float(), K.float(), K.float()), {}, NotImplementedError, "dtype torch.float32 is not served"),
    ((tensor(1, 1, 2, 80),) * 3, {}, NotImplementedError, "head_dim 80 is not served yet"),
    ((Q, K, tensor(2, 4, 7, 128)), {}, NotImplementedError, "value: head_dim 128"),
]


@pytest.mark.parametrize(("args", "options", "error", "message"), BAD, ids=[row[3][:30] for row in BAD])
def test_message(args, options, error, message):
    with pytest.raises(error, match=message.replace("(", r"\(")):
        check(*args, **options)


def test_problem():
    problem = check(Q, K, K, is_causal=True, causal_alignment="bottom_right")
    assert (problem.batch, problem.heads_q, problem.seqlen_q, problem.seqlen_k) == (2, 4, 5, 7)
    assert problem.causal_offset == 2 and problem.scale == 0.125
    assert check(Q, K, K, is_causal=True).causal_offset == 0
    assert check(Q, K, K, causal_alignment="bottom_right").mask == "none"
    assert check(Q, K, K, scale=0.0).scale == 0.0
