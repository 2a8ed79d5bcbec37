"""Makes opscope see an NVIDIA GPU, in a Python with this folder first on its path, where there is none.

``CUPTI_STAND_IN_GPU=1`` asks for it, ``amd`` for another one. The device files of a GPU do not exist; the library is found by
``LD_LIBRARY_PATH``.
"""

import os

if os.environ.get("CUPTI_STAND_IN_GPU"):
    import wrapt

    def _imported(backends):
        vendor = os.environ["CUPTI_STAND_IN_GPU"]
        backends.gpu_vendor = lambda *_: "nvidia" if vendor == "1" else vendor

    wrapt.register_post_import_hook(_imported, "opscope.backends.choice")
