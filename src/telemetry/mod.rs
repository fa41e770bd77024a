//! Metrics, slow log, latency, INFO, log lines and the HTTP endpoint.
