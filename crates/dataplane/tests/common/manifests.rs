//! Applications that several tests use.

/// One stateful service with a backup.
pub const ONE: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: one}
spec:
  objective: {latency: 50ms}
  deadline: 60s
  ingress: only
  services:
    - name: only
      module: only.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
";

/// Two stateful services without backups.
pub const PAIR: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: pair}
spec:
  objective: {latency: 50ms}
  deadline: 30s
  admittedMax: 20000
  ingress: front
  services:
    - name: front
      module: s.wasm
      stateful: true
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
    - name: back
      module: s.wasm
      stateful: true
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
  channels:
    - {name: a, from: front, to: back}
";

/// A service without state.
pub const STATELESS: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: stateless}
spec:
  objective: {latency: 50ms}
  deadline: 30s
  ingress: only
  services:
    - name: only
      module: s.wasm
      resources: {cpu: 0.1, memory: 64Mi}
";

/// A stateful service that passes messages to another, and calls it; each has a backup.
pub const SHOP: &str = "\
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: shop}
spec:
  objective: {latency: 50ms}
  deadline: 30s
  admittedMax: 20000
  ingress: shop
  services:
    - name: shop
      module: s.wasm
      stateful: true
      replicas: 2
      calls: [stock]
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
    - name: stock
      module: s.wasm
      stateful: true
      replicas: 2
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
  channels:
    - {name: a, from: shop, to: stock}
";
