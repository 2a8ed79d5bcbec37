"""Whose a file is, and which frames of a stack are kept."""

from __future__ import annotations

import pytest

from opscope.core.code_files import is_ours, kept_frames, library_file, select_frames

HERE = "/home/me/venv/lib/python3.11/site-packages/"


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        (HERE + "transformers/models/bert/modeling_bert.py", "transformers/models/bert/modeling_bert.py"),
        (HERE + "timm/models/resnet.py", "timm/models/resnet.py"),
        (HERE + "mymodel.py", "mymodel.py"),
        ("/usr/lib/python3/dist-packages/zoo/net.py", "zoo/net.py"),
        ("C:\\py\\Lib\\site-packages\\zoo\\net.py", "zoo/net.py"),
        ("transformers/models/qwen2/modeling_qwen2.py", "transformers/models/qwen2/modeling_qwen2.py"),
        (HERE + "transformers/trainer.py", None),
        (HERE + "transformers/generation/utils.py", None),
        (HERE + "transformers/activations.py", None),
        (HERE + "torch/nn/modules/linear.py", None),
        (HERE + "keras/src/layers/core/dense.py", None),
        (HERE + "flax/nnx/nn/linear.py", None),
        (HERE + "jax/_src/numpy/lax_numpy.py", None),
        (HERE + "accelerate/optimizer.py", None),
        (HERE + "lightning/pytorch/loops/fit_loop.py", None),
        (HERE + "pytorch_lightning/trainer/trainer.py", None),
        (HERE + "einops/einops.py", None),
        (HERE + "six.py", None),
        ("/home/me/train.py", None),
        ("train.py", None),
    ],
)  # fmt: skip
def test_a_library_s_file_is_known_and_internals_are_none(path, inside):
    assert library_file(path) == inside


def test_the_innermost_line_of_a_library_comes_before_the_user_s():
    stack = [
        (HERE + "torch/nn/modules/linear.py", 125),
        (HERE + "transformers/models/bert/modeling_bert.py", 364),
        (HERE + "torch/nn/modules/module.py", 1750),
        (HERE + "transformers/models/bert/modeling_bert.py", 900),
        (HERE + "transformers/trainer.py", 3000),
        ("/home/me/hf_trainer.py", 20),
        ("/usr/lib/python3.11/contextlib.py", 81),
        ("/home/me/main.py", 7),
        (HERE + "fancy_launcher/run.py", 3),
    ]
    assert kept_frames(stack) == (
        ("transformers/models/bert/modeling_bert.py", 364),
        ("/home/me/hf_trainer.py", 20),
        ("/home/me/main.py", 7),
    )


def test_a_library_that_calls_the_user_s_model_is_not_told():
    stack = [("/home/me/model.py", 3), (HERE + "zoo/loop.py", 9), ("/home/me/train.py", 1)]
    assert kept_frames(stack) == (("/home/me/model.py", 3), ("/home/me/train.py", 1))


def test_three_frames_of_the_user_s_are_kept_and_one_of_a_library_at_most():
    users = [((f"u{n}.py", n), True) for n in range(5)]
    library = [((f"l{n}.py", n), False) for n in range(2)]
    assert [file for (file, _) in select_frames([*library, *users])] == [
        "l0.py",
        "u0.py",
        "u1.py",
        "u2.py",
    ]
    assert select_frames(library) == (("l0.py", 0),)
    assert select_frames([]) == ()


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        ("/venv/lib/python3.11/site-packages/opscope/core/capture/emit.py", True),
        ("/home/me/opscope/adapters/torch/dispatch.py", True),
        ("/venv/lib/python3.11/site-packages/opscope_openvino/__init__.py", True),
        ("/home/me/opscope_experiments/train.py", False),
        ("/venv/lib/python3.11/site-packages/openvino/_ov_api.py", False),
    ],
)
def test_code_of_adapters_in_packages_of_their_own_is_opscope_s(path, is_own):
    assert is_ours(path) == is_own
