//! A connection's state machine without I/O: requests in, replies and waits out.
