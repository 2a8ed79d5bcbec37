"""When a step is an outlier: by the modified z-score, and far enough from the median to matter.

The score is 0.6745 · (time - median) / MAD (B. Iglewicz and D. Hoaglin, "How to Detect and Handle Outliers",
1993); MAD is the median absolute deviation.
"""

from __future__ import annotations

from typing import Final

#: The modified z-score above which a step is an outlier.
SCORE: Final = 3.5
#: The median of a normal distribution's absolute deviations, in standard deviations.
NORMAL: Final = 0.6745
#: With fewer steps, no step counts as an outlier.
FEWEST: Final = 5
