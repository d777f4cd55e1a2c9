"""The colours, markers and lines of all pictures and pages."""

# What is written and what lies behind it. Nothing else has these colours, so that a page may exchange them.
INK, PAPER = "#202124", "#fffffe"
# Okabe and Ito's colours, with brown in place of their black, which a dark page would hide.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.")
