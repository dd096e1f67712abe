"""The version of this package, which the engine's jar must share."""

VERSION = "0.2.0"
