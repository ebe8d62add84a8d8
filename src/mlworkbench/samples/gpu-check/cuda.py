"""Calls the NVIDIA driver library, libcuda, through ctypes, without a framework.

Every machine with a driver has this library, and every framework uses it. If this module works, the machine, the
driver, and the container are set up correctly, and remaining errors come from packages.
"""

import array
import ctypes
import time

LIBRARY = "libcuda.so.1"
THREADS = 256  # per block
CHAIN = 8  # fused multiply-add operations in one iteration
OUT_OF_REACH = {100: "no GPU is visible", 3: "the driver is not initialized", 999: "the driver does not respond"}
HINTS = {
    2: "the GPU memory is full; run `mlw gpus` to see which processes use it",
    46: "another process uses the GPU exclusively; run `mlw gpus` to see which one",
    803: "the driver was updated after the machine booted; reboot the machine",
}
_CAPABILITY, _MULTIPROCESSORS = (75, 76), 16  # numbers of CUdevice_attribute

# Each thread repeatedly computes x * 0.5 + 1, which converges to 2. The driver compiles this text for the GPU.
_PTX = """
.version {version}
.target {target}
.address_size 64
.visible .entry halves(.param .u64 data, .param .u32 rounds)
{{
    .reg .pred %p<2>;
    .reg .f32 %f<2>;
    .reg .b32 %r<6>;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [data];
    ld.param.u32 %r1, [rounds];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    mul.wide.u32 %d2, %r5, 4;
    cvta.to.global.u64 %d1, %d1;
    add.u64 %d3, %d1, %d2;
    ld.global.f32 %f1, [%d3];
AGAIN:
{chain}
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    st.global.f32 [%d3], %f1;
    ret;
}}
"""
_STEP = "    fma.rn.f32 %f1, %f1, 0f3F000000, 0f3F800000;"
_DIALECTS = (("6.0", "sm_52"), ("7.0", "sm_80"), ("8.7", "sm_100"))  # oldest first: newer GPUs support older versions


class NoGpu(Exception):
    """No GPU is available; the message states what is missing."""


class CudaError(Exception):
    """An operation on a GPU failed."""


class Driver:
    """The driver library, loaded and initialized."""

    def __init__(self, library=LIBRARY):
        try:
            self._cuda = ctypes.CDLL(library)
        except OSError as error:
            raise NoGpu(f"no NVIDIA driver: {error}") from None
        code = self._cuda.cuInit(0)
        if code in OUT_OF_REACH:
            raise NoGpu(f"{OUT_OF_REACH[code]}: {self._words(code)}")
        self._check(code, "cuInit")

    def call(self, name, *values):
        """Calls a function of the driver. All functions return an error code; 0 is success."""
        self._check(getattr(self._cuda, name)(*values), name)

    def has(self, name):
        return hasattr(self._cuda, name)

    def number(self, name, *values):
        """Returns the number that a function writes to its first argument."""
        found = ctypes.c_int()
        self.call(name, ctypes.byref(found), *values)
        return found.value

    def version(self):
        """Returns the newest CUDA version that this driver supports."""
        number = self.number("cuDriverGetVersion")
        return f"{number // 1000}.{number % 1000 // 10}"

    def gpus(self):
        """Returns the GPUs that this process can use. The driver respects CUDA_VISIBLE_DEVICES."""
        return [Gpu(self, number) for number in range(self.number("cuDeviceGetCount"))]

    def _check(self, code, name):
        if code:
            hint = HINTS.get(code)
            raise CudaError(f"{name}: {self._words(code)}" + (f"\nhint: {hint}" if hint else ""))

    def _words(self, code):
        texts = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            if getattr(self._cuda, name)(code, ctypes.byref(text)) == 0 and text.value:
                texts.append(text.value.decode(errors="replace"))
        return ", ".join(texts) or f"error {code}"


class Gpu:
    """A GPU, or a MIG slice of a GPU."""

    def __init__(self, driver, number):
        self._driver, self.number = driver, number
        self._device = driver.number("cuDeviceGet", number)
        name = ctypes.create_string_buffer(256)
        driver.call("cuDeviceGetName", name, len(name), self._device)
        self.name = name.value.decode(errors="replace")
        self.capability = ".".join(str(self._attribute(one)) for one in _CAPABILITY)
        self.multiprocessors = self._attribute(_MULTIPROCESSORS)
        size = ctypes.c_size_t()
        driver.call("cuDeviceTotalMem_v2", ctypes.byref(size), self._device)
        self.memory = size.value

    def uuid(self):
        """Returns the UUID as in nvidia-smi -L and CUDA_VISIBLE_DEVICES."""
        room = (ctypes.c_ubyte * 16)()
        name = "cuDeviceGetUuid_v2" if self._driver.has("cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
        self._driver.call(name, room, self._device)
        text = bytes(room).hex()
        kind = "MIG" if "MIG" in self.name else "GPU"
        return f"{kind}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def work(self, seconds):
        """Keeps the GPU busy for the given time. Yields (elapsed seconds, operations per second) every 0.1 seconds."""
        context = ctypes.c_void_p()
        self._driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        try:
            self._driver.call("cuCtxSetCurrent", context)
            yield from self._calculate(seconds)
        finally:
            self._driver.call("cuDevicePrimaryCtxRelease_v2", self._device)

    def _calculate(self, seconds):
        kernel = self._kernel()
        blocks = self.multiprocessors * 8
        count = blocks * THREADS
        data = ctypes.c_uint64()
        self._driver.call("cuMemAlloc_v2", ctypes.byref(data), ctypes.c_size_t(4 * count))
        try:
            self._driver.call("cuMemsetD32_v2", data, 0, ctypes.c_size_t(count))
            self._launch(kernel, blocks, data, 16)  # warm-up, not measured
            began, rounds, passed = time.monotonic(), 1000, 0.0
            while passed < seconds:
                took = self._launch(kernel, blocks, data, rounds)
                passed = time.monotonic() - began
                yield passed, 2 * CHAIN * rounds * count / took
                rounds = int(min(max(rounds * 0.1 / took, 100), rounds * 10, 2**31))
            self._verify(data, count)
        finally:
            self._driver.call("cuMemFree_v2", data)

    def _kernel(self):
        """Loads the program in the oldest PTX version that this driver supports."""
        trouble = None
        for version, target in _DIALECTS:
            text = _PTX.format(version=version, target=target, chain="\n".join([_STEP] * CHAIN)).encode()
            module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
            try:
                self._driver.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(text))
                self._driver.call("cuModuleGetFunction", ctypes.byref(kernel), module, b"halves")
                return kernel
            except CudaError as error:
                trouble = trouble or error
        raise trouble

    def _launch(self, kernel, blocks, data, rounds):
        """Runs the kernel and returns the seconds that it took."""
        rounds = ctypes.c_uint32(rounds)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(data), ctypes.addressof(rounds))
        began = time.perf_counter()
        self._driver.call("cuLaunchKernel", kernel, blocks, 1, 1, THREADS, 1, 1, 0, None, values, None)
        self._driver.call("cuCtxSynchronize")
        return time.perf_counter() - began

    def _verify(self, data, count):
        """Checks the results: a GPU that computes wrong results is worse than none."""
        room = (ctypes.c_float * count)()
        self._driver.call("cuMemcpyDtoH_v2", room, data, ctypes.c_size_t(4 * count))
        if bytes(room) != array.array("f", [2.0]).tobytes() * count:
            raise CudaError("the GPU computed a wrong result\nhint: check the kernel log for Xid errors")

    def _attribute(self, number):
        return self._driver.number("cuDeviceGetAttribute", number, self._device)
