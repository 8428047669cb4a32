internal import Control

/// The state and counters of mounts in the text format of Prometheus, which node_exporter's textfile collector reads.
struct PrometheusText {
    private typealias Labels = [(name: String, value: String)]

    fileprivate enum Kind: String {
        case counter, gauge
    }

    /// A metric made of a field of the status.
    fileprivate struct Field: Sendable {
        let path: [String]
        let name: String
        let kind: Kind
        let help: String
        var factor = 1.0
    }

    private static let fields: [Field] = [
        Field(path: ["requests", "served"], name: "requests_total", kind: .counter, help: "Requests of the kernel."),
        .counter("cacheHits", "cache_hits_total", "Chunks taken from the block cache."),
        .counter("cacheMisses", "cache_misses_total", "Chunks read from the store and decrypted."),
        .gauge("cacheSize", "cache_size_bytes", "Memory that the block cache may use."),
        .gauge("cacheUsed", "cache_used_bytes", "Memory that the block cache uses."),
        .counter("aesBlocksDecrypted", "aes_blocks_decrypted_total", "AES blocks decrypted."),
        .counter("ciphertextBytesRead", "ciphertext_read_bytes_total", "Ciphertext read from the store."),
        .counter("ciphertextBytesWritten", "ciphertext_written_bytes_total", "Ciphertext written to the store."),
        .counter("cryptoMicroseconds", "crypto_seconds_total", "Time of all threads in cryptography.", factor: 1e-6),
        .counter("storeMicroseconds", "store_seconds_total", "Time of all threads in the store.", factor: 1e-6),
        .counter("damagedReads", "damaged_reads_total", "Reads refused because authentication failed."),
        .counter("hiddenNames", "hidden_names_total", "Names hidden because they do not authenticate, each time."),
        .counter("filesSealed", "files_sealed_total", "Files sealed."),
        .counter("completedObjects", "completed_objects_total", "Objects completed after an unclean end."),
        .gauge("isCompleting", "completing", "1 while a walk completes what an unclean end left."),
        .gauge("nodes", "nodes", "Files and directories that the kernel knows."),
        .log("size", "log_size_bytes", "Size that the redo log can have."),
        .log("used", "log_used_bytes", "Bytes of the redo log that are not in place."),
        .log("indexMemory", "log_index_memory_bytes", "Memory of the redo log's index."),
    ]

    private(set) var text = ""

    init(_ mounts: [MountStatus]) {
        add("mounts", .gauge, "Vaults and views that are mounted.", [([], Double(mounts.count))])
        add(
            "mount_info", .gauge, "The source and version of a mount, as labels.",
            mounts.map { mount in
                let labels: Labels = [
                    ("source", mount.vaultPath), ("vault", mount.vaultID), ("view", mount.view ?? ""),
                    ("version", mount.version),
                ]
                return (Self.labels(mount) + labels, 1)
            })
        add("locked", .gauge, "1 unless the mount is unlocked.", mounts) { $0.state == "unlocked" ? 0 : 1 }
        add("read_only", .gauge, "1 if the mount is read-only.", mounts) { $0.readOnly ? 1 : 0 }
        add("uptime_seconds", .gauge, "Time since the mount.", mounts) { Double($0.uptimeSeconds) }
        add("problems", .gauge, "Problems that status lists.", mounts) { Double($0.problems?.count ?? 0) }
        for field in Self.fields {
            add(field.name, field.kind, field.help, mounts) { mount in
                field.value(in: mount).map { $0 * field.factor }
            }
        }
    }

    private static func labels(_ mount: MountStatus) -> Labels { [("mountpoint", mount.mountpoint)] }

    private mutating func add(
        _ name: String, _ kind: Kind, _ help: String, _ mounts: [MountStatus], value: (MountStatus) -> Double?
    ) {
        add(name, kind, help, mounts.compactMap { mount in value(mount).map { (Self.labels(mount), $0) } })
    }

    /// Adds a metric, unless no mount has it.
    private mutating func add(_ name: String, _ kind: Kind, _ help: String, _ samples: [(Labels, Double)]) {
        if samples.isEmpty { return }
        text += "# HELP vaultfs_\(name) \(help)\n# TYPE vaultfs_\(name) \(kind.rawValue)\n"
        for (labels, value) in samples {
            let pairs = labels.map { "\($0.name)=\"\(Self.escaped($0.value))\"" }.joined(separator: ",")
            text += "vaultfs_\(name)\(pairs.isEmpty ? "" : "{\(pairs)}") \(Self.number(value))\n"
        }
    }

    /// Integers have no decimal point.
    private static func number(_ value: Double) -> String {
        Int64(exactly: value).map { "\($0)" } ?? "\(value)"
    }

    /// A label's value: backslash, quote and line feed are escaped.
    private static func escaped(_ value: String) -> String {
        value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\n", with: "\\n")
    }
}

extension PrometheusText.Field {
    fileprivate static func counter(_ field: String, _ name: String, _ help: String, factor: Double = 1) -> Self {
        Self(path: ["statistics", field], name: name, kind: .counter, help: help, factor: factor)
    }

    fileprivate static func gauge(_ field: String, _ name: String, _ help: String) -> Self {
        Self(path: ["statistics", field], name: name, kind: .gauge, help: help)
    }

    fileprivate static func log(_ field: String, _ name: String, _ help: String) -> Self {
        Self(path: ["statistics", "log", field], name: name, kind: .gauge, help: help)
    }

    /// Nil if the mount does not have the field.
    fileprivate func value(in mount: MountStatus) -> Double? {
        var value = path.first == "requests" ? mount.requests : mount.statistics
        for name in path.dropFirst() { value = value?[name] }
        return switch value {
        case .bool(let isTrue): isTrue ? 1 : 0
        case .integer(let number): Double(number)
        case .unsigned(let number): Double(number)
        case .number(let number): number
        case .string, .array, .object, .null, nil: nil
        }
    }
}
