"""Installs ``cuda_driver`` in a Python with this folder first on its path, so that PyTorch sees GPUs.

``CUDA_STAND_IN``: a JSON object with the arguments of ``cuda_driver.Driver``, and ``log``, a file that gets
the calls to the driver when the process ends. Without the variable nothing happens.
"""

import json
import os

if os.environ.get("CUDA_STAND_IN"):
    import cuda_driver

    cuda_driver.wait_for_torch(**json.loads(os.environ["CUDA_STAND_IN"]))
