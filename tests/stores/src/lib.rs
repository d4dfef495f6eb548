//! Tests that cross stores. Those of one store stand beside it.
