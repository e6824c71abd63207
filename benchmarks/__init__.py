"""What a step costs, beside what the disk and the codecs alone would cost.

`python -m benchmarks` measures and prints; it never fails for being slow. Absolute
figures drift with the machine and its neighbours: the ratios are what to read.
"""
