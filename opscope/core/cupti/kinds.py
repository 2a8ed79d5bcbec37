"""Numbers in CUPTI's headers for kinds of records, copies, memories and waits."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

MEMCPY: Final = 1
MEMSET: Final = 2
KERNEL: Final = 3
DRIVER: Final = 4
RUNTIME: Final = 5
DEVICE: Final = 8
CONTEXT: Final = 9
CONCURRENT_KERNEL: Final = 10
NAME: Final = 11
MARKER: Final = 12
OVERHEAD: Final = 17
ENVIRONMENT: Final = 20
#: A copy between two devices.
MEMCPY2: Final = 22
UNIFIED_MEMORY_COUNTER: Final = 25
CUDA_EVENT: Final = 36
STREAM: Final = 37
SYNCHRONIZATION: Final = 38
EXTERNAL_CORRELATION: Final = 39
MEMORY2: Final = 49
MEMORY_POOL: Final = 50
GRAPH_TRACE: Final = 51
DEVICE_GRAPH_TRACE: Final = 53
MEM_DECOMPRESS: Final = 54
GRAPH_HOST_NODE: Final = 56
HOST_LAUNCH: Final = 58
GREEN_CONTEXT: Final = 59

#: CUpti_ActivityMemcpyKind.
COPIES: Final = MappingProxyType(
    {
        1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD",
        9: "HtoH", 10: "PtoP",
    }
)  # fmt: skip
#: CUpti_ActivityMemoryKind; 0 is "not known".
MEMORIES: Final = MappingProxyType(
    {
        1: "pageable", 2: "pinned", 3: "device", 4: "array", 5: "managed", 6: "device", 7: "managed",
    }
)  # fmt: skip
#: CUpti_ActivitySynchronizationType.
SYNCS: Final = MappingProxyType({1: "event", 2: "stream wait", 3: "stream", 4: "context"})
#: CUpti_ActivityUnifiedMemoryCounterKind: the kinds that are copies.
UNIFIED_COPIES: Final = MappingProxyType({1: "UvmHtoD", 2: "UvmDtoH", 8: "UvmDtoD"})
#: CUPTI's value for a stream, an event or a graph that a record does not have.
NONE32: Final = (1 << 32) - 1
