"""First on the path of a Python: its PyTorch believes that it has GPUs, as ``cuda_driver`` pretends.

``CUDA_STAND_IN``: a JSON object of ``cuda_driver.Driver``'s arguments, with ``log``, a file that gets
what the driver was asked for as the process ends. Without it nothing happens.
"""

import json
import os

if os.environ.get("CUDA_STAND_IN"):
    import cuda_driver

    cuda_driver.wait_for_torch(**json.loads(os.environ["CUDA_STAND_IN"]))
