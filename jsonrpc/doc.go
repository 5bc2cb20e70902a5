// Package jsonrpc is one JSON-RPC 2.0 message that keeps the bytes it arrived as.
//
// A message is scanned once. The scan proves that it is well-formed JSON in
// UTF-8, finds the members of the envelope and the few members of params that
// routing needs, and decodes nothing. What a message is changed by on its way
// (an id, a progress token) is spliced into a copy of its bytes, so that
// numbers, key order, escapes and unknown members arrive as they were sent.
package jsonrpc
