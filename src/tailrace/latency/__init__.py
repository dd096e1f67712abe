"""What latency is here and how it is counted. Pure: no clock is read, no file or network is touched."""
