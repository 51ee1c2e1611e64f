"""One file per wire format, how they are told apart, and how a request is taken apart."""
