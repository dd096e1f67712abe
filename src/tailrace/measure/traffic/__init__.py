"""Load that keeps to its plan and a probe that reads results like any consumer, each in a process of its own.

Both are separate processes so that neither the driver program nor the other one can delay what they time.
"""
