// SPDX-License-Identifier: MIT
//! Empty: this package only pins the crate that carries DynamoRIO's source.
