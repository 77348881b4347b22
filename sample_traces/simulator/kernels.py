"""Kernels of a transformer layer with their times from operations and bytes moved."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from simulator.ops import AUTOGRAD, MAIN, Kernel

if TYPE_CHECKING:
    from simulator.config import Job

_FLASH = "pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>"
_GEMM = "nvjet_tst_{m}x{n}_64x4_2x1_v_bz_{layout}"
_GEMM_24 = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_{layout}_n_tilesize{m}x{n}x64_warpgroupsize1x1x1_"
    "execute_segment_k_off_kernel__5x_cublas"
)
_GEMM_AMPERE = "ampere_bf16_s16816gemm_bf16_{m}x{n}_ldg8_f2f_stages_64x3_{layout}"
_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, {functor}, std::array<char*, {n}ul> >"
_NORM = "void at::native::(anonymous namespace)::{which}<c10::BFloat16, float>(int, float, c10::BFloat16 const*)"
_FOREACH = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4>>"
)
_SM = 132


def name_on(gpu: str, name: str) -> str:
    """A kernel's name on a device: the matrix library picks other kernels on older GPUs."""
    if "A100" not in gpu or not name.startswith(("nvjet", "sm90")):
        return name
    return _GEMM_AMPERE.format(m=256, n=128, layout="nt" if "NT" in name or "_nt_" in name else "tn")


class _Where(TypedDict):
    """Thread that launches a kernel, and its micro-batch."""

    thread: str
    micro: int


class KernelBook:
    """Builds kernels of one job. Times are ns on a nominal device."""

    def __init__(self, job: Job) -> None:
        self.job, self.model, self.tp = job, job.model, max(1, job.tp)

    def gemm(self, op: str, m: int, n: int, k: int, *, thread: str, micro: int, layout: str) -> Kernel:
        """A matrix product of m x k by k x n."""
        tile = (128, 256) if n % 256 == 0 else (64, 128)
        tiles = max(1, -(-m // tile[0]) * -(-n // tile[1]))
        name = _GEMM if self.job.era == "2.13" else _GEMM_24
        return Kernel(
            name=name.format(m=tile[0], n=tile[1], layout=layout if self.job.era == "2.13" else layout[:2].lower()),
            op=op,
            base_ns=2e9 * m * n * k / self.job.cluster.flops + 2_500,
            grid=(min(_SM, tiles) if tiles < _SM else tiles, 1, 1),
            block=(384, 1, 1),
            registers=168,
            shared=213_248,
            thread=thread,
            micro=micro,
            dims=((m, k), (k, n)),
        )

    def memory(self, op: str, name: str, nbytes: float, *, thread: str, micro: int) -> Kernel:
        """A kernel that only moves data."""
        return Kernel(
            name=name,
            op=op,
            base_ns=1e9 * nbytes / self.job.cluster.hbm + 1_800,
            grid=(max(1, int(nbytes / 4 / 512 / 4)), 1, 1),
            block=(128, 1, 1),
            registers=32,
            bound="memory",
            thread=thread,
            micro=micro,
            dims=((self.model.tokens, self.model.hidden),),
        )

    def attention(self, op: str, share: float, *, thread: str, micro: int) -> Kernel:
        """A fused attention kernel; share is its work relative to the forward pass."""
        t, h = self.model.tokens, self.model.hidden // self.tp
        backward = thread == AUTOGRAD
        which = "bwd_dq_dk_dv_loop_seqk_parallel" if backward else "fwd"
        return Kernel(
            name=f"void pytorch_flash::flash_{which}_kernel<{_FLASH}>",
            op=op,
            base_ns=share * 1e9 * 2 * t * t * h / (0.6 * self.job.cluster.flops) + 3_000,
            grid=(-(-t // 128), 1, max(1, h // 128)),
            block=(128, 1, 1) if not backward else (256, 1, 1),
            registers=255,
            shared=81_920 if not backward else 147_456,
            power=2,
            thread=thread,
            micro=micro,
            dims=((1, max(1, h // 128), t, 128),) * 3,
        )

    def elementwise(self, functor: str, op: str, nbytes: float, *, thread: str, micro: int, n: int = 3) -> Kernel:
        """An elementwise kernel of PyTorch."""
        name = _ELEMENTWISE.format(functor=f"at::native::{functor}", n=n)
        return self.memory(op, name, nbytes, thread=thread, micro=micro)

    def forward(self, micro: int) -> tuple[list[Kernel], list[Kernel]]:
        """Attention half and feed-forward half of one layer."""
        t, h, p = self.model.tokens, self.model.hidden, self.tp
        row = 2.0 * t * h
        kw: _Where = {"thread": MAIN, "micro": micro}
        if self.model.detail == "coarse":
            gemm = self.gemm("aten::mm", t, 4 * h // p, h, **kw, layout="NNT")
            attention = [self.attention("aten::_scaled_dot_product_flash_attention", 1.0, **kw), gemm]
            feed = [
                self.gemm("aten::addmm", t, 8 * h // p, h, **kw, layout="TNN"),
                self.elementwise("CUDAFunctor_add<c10::BFloat16>", "aten::add", 12 * row, **kw),
            ]
            return attention, feed
        norm = _NORM.format(which="vectorized_layer_norm_kernel")
        attention = [
            self.memory("aten::native_layer_norm", norm, 2 * row, **kw),
            self.gemm("aten::mm", t, 3 * h // p, h, **kw, layout="TNT"),
            self.attention("aten::_scaled_dot_product_flash_attention", 1.0, **kw),
            self.gemm("aten::mm", t, h, h // p, **kw, layout="TNN"),
        ]
        feed = [
            self.elementwise("CUDAFunctor_add<c10::BFloat16>", "aten::add", 3 * row, **kw),
            self.memory("aten::native_layer_norm", norm, 2 * row, **kw),
            self.gemm("aten::addmm", t, 4 * h // p, h, **kw, layout="TNT"),
            self.elementwise("GeluCUDAKernelImpl", "aten::gelu", 8 * row / p, **kw, n=2),
            self.gemm("aten::addmm", t, h, 4 * h // p, **kw, layout="TNN"),
            self.elementwise("CUDAFunctor_add<c10::BFloat16>", "aten::add", 3 * row, **kw),
        ]
        return attention, feed

    def backward(self, micro: int) -> tuple[list[Kernel], list[Kernel]]:
        """Feed-forward half and attention half of one layer's backward pass."""
        t, h, p = self.model.tokens, self.model.hidden, self.tp
        row = 2.0 * t * h
        kw: _Where = {"thread": AUTOGRAD, "micro": micro}
        if self.model.detail == "coarse":
            feed = [self.gemm("aten::mm", t, 16 * h // p, h, **kw, layout="NTN")]
            attention = [
                self.attention("aten::_scaled_dot_product_flash_attention_backward", 2.5, **kw),
                self.gemm("aten::mm", t, 8 * h // p, h, **kw, layout="NTT"),
                self.elementwise("CUDAFunctor_add<c10::BFloat16>", "aten::add_", 12 * row, **kw),
            ]
            return feed, attention
        norm = _NORM.format(which="layer_norm_grad_input_kernel_vectorized")
        feed = [
            self.gemm("aten::mm", t, 4 * h // p, h, **kw, layout="NNT"),
            self.gemm("aten::mm", 4 * h // p, h, t, **kw, layout="NTN"),
            self.elementwise("GeluBackwardCUDAKernelImpl", "aten::gelu_backward", 12 * row / p, **kw),
            self.gemm("aten::mm", t, h, 4 * h // p, **kw, layout="NNN"),
            self.gemm("aten::mm", h, 4 * h // p, t, **kw, layout="NTT"),
            self.memory("aten::native_layer_norm_backward", norm, 3 * row, **kw),
        ]
        attention = [
            self.gemm("aten::mm", t, h // p, h, **kw, layout="NNT"),
            self.gemm("aten::mm", h // p, h, t, **kw, layout="NTN"),
            self.attention("aten::_scaled_dot_product_flash_attention_backward", 2.5, **kw),
            self.gemm("aten::mm", t, h, 3 * h // p, **kw, layout="NNN"),
            self.gemm("aten::mm", h, 3 * h // p, t, **kw, layout="NTT"),
            self.memory("aten::native_layer_norm_backward", norm, 3 * row, **kw),
            self.elementwise("CUDAFunctor_add<c10::BFloat16>", "aten::add_", 3 * row, **kw),
        ]
        return feed, attention

    def embedding(self, micro: int) -> list[Kernel]:
        """The lookup at the start of the first stage."""
        place = "void at::native::(anonymous namespace)"
        name = f"{place}::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>"
        row = 2.0 * self.model.tokens * self.model.hidden
        return [self.memory("aten::embedding", name, 2 * row, thread=MAIN, micro=micro)]

    def head(self, micro: int, thread: str) -> list[Kernel]:
        """Logits and loss at the end of the last stage, forward or backward."""
        t, h, v = self.model.tokens, self.model.hidden, self.model.vocab // self.tp
        kw: _Where = {"thread": thread, "micro": micro}
        soft = (
            "void at::native::(anonymous namespace)::cunn_SoftMax{way}<8, float, float, float, at::native::LogSoftMax>"
        )
        if thread == MAIN:
            name = soft.format(way="Forward")
            return [
                self.gemm("aten::mm", t, v, h, **kw, layout="TNT"),
                self.memory("aten::_log_softmax", name, 8.0 * t * v, **kw),
            ]
        name = soft.format(way="Backward")
        return [
            self.memory("aten::_log_softmax_backward_data", name, 10.0 * t * v, **kw),
            self.gemm("aten::mm", t, h, v, **kw, layout="NNN"),
            self.gemm("aten::mm", v, h, t, **kw, layout="NTT"),
        ]

    def optimizer(self, parameters: int, pieces: int) -> list[Kernel]:
        """Fused AdamW over the local parameters, 16 bytes read and 12 written each."""
        kernel = self.memory("aten::_fused_adamw_", _FOREACH, 28.0 * parameters / pieces, thread=MAIN, micro=0)
        return [replace(kernel, power=0, dims=())] * pieces

    def foreach_norm(self, parameters: int) -> Kernel:
        """Gradient norm over the local gradients."""
        name = (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
            "TensorListMetadata<1>, at::native::(anonymous namespace)::LpNormFunctor<float, (at::native::NormType)1>>"
        )
        kernel = self.memory("aten::_foreach_norm", name, 4.0 * parameters, thread=MAIN, micro=0)
        return replace(kernel, power=0, dims=())

    def reshuffle(self, op: str, parameters: int, *, thread: str) -> Kernel:
        """FSDP's copies between flat buffers and parameters."""
        which = "split_with_sizes_copy_out_contiguous_no_cast_kernel" if thread == MAIN else "chunk_cat_cuda_kernel"
        name = f"void at::native::detail::{which}<c10::BFloat16>(char**, char**, long*, long*, long*, long, long)"
        return replace(self.memory(op, name, 4.0 * parameters, thread=thread, micro=0), power=0, dims=())
