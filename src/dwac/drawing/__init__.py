"""Drawing: one style for all pictures, its colours, and the picture of a single explanation. Internal.

A low layer, so that the paper, the report and `Explanation.plot` can all use it. Drawing needs the extra
`dwac[report]`; importing does not.
"""

# Text and background. Nothing else has these colours, so that a page can replace them.
INK, PAPER = "#202124", "#fffffe"
# Okabe and Ito's colours, with brown instead of black, which would be invisible on a dark page.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.")
