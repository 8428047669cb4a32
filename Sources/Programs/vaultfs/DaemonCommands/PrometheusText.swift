internal import Control
internal import FileSystem

/// The state and counters of mounts in the text format of Prometheus, read by node_exporter's textfile collector.
struct PrometheusText {
    private typealias Labels = [(name: String, value: String)]

    private enum Kind: String {
        case counter, gauge
    }

    private let mounts: [MountStatus]
    private(set) var text = ""

    init(_ mounts: [MountStatus]) {
        self.mounts = mounts
        addMounts()
        addStatistics()
    }

    private mutating func addMounts() {
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
        add("locked", .gauge, "1 unless the mount is unlocked.") { $0.state == "unlocked" ? 0 : 1 }
        add("read_only", .gauge, "1 if the mount is read-only.") { $0.readOnly ? 1 : 0 }
        add("uptime_seconds", .gauge, "Time since the mount.") { $0.uptimeSeconds }
        add("problems", .gauge, "Problems that status lists.") { $0.problems?.count ?? 0 }
    }

    private mutating func addStatistics() {
        add("requests_total", .counter, "Requests of the kernel.") { $0.requests?.served }
        add("cache_hits_total", .counter, "Chunks taken from the block cache.", \.cacheHits)
        add("cache_misses_total", .counter, "Chunks read from the store and decrypted.", \.cacheMisses)
        add("cache_size_bytes", .gauge, "Memory that the block cache may use.", \.cacheSize)
        add("cache_used_bytes", .gauge, "Memory that the block cache uses.", \.cacheUsed)
        add("aes_blocks_decrypted_total", .counter, "AES blocks decrypted.", \.aesBlocksDecrypted)
        add("ciphertext_read_bytes_total", .counter, "Ciphertext read from the store.", \.ciphertextBytesRead)
        add("ciphertext_written_bytes_total", .counter, "Ciphertext written to the store.", \.ciphertextBytesWritten)
        add(
            "crypto_seconds_total", .counter, "Time of all threads in cryptography.", \.cryptoMicroseconds, factor: 1e-6
        )
        add("store_seconds_total", .counter, "Time of all threads in the store.", \.storeMicroseconds, factor: 1e-6)
        add("damaged_reads_total", .counter, "Reads refused because authentication failed.", \.damagedReads)
        add(
            "hidden_names_total", .counter, "Names hidden because they are damaged or were moved, each time.",
            \.hiddenNames)
        add(
            "conflict_copies", .gauge, "Conflict copies of sync clients that were seen and are there.", \.conflictCopies
        )
        add("files_sealed_total", .counter, "Files whose length was authenticated.", \.filesSealed)
        add("completed_objects_total", .counter, "Objects completed after an unclean end.", \.completedObjects)
        add("completing", .gauge, "1 while a walk completes what an unclean end left.") {
            $0.statistics?.isCompleting.map { $0 ? 1 : 0 }
        }
        add("nodes", .gauge, "Files and directories that the kernel knows.", \.nodes)
        add("log_size_bytes", .gauge, "Size that the redo log can have.", \.log?.size)
        add("log_used_bytes", .gauge, "Bytes of the redo log that are not in place.", \.log?.used)
        add("log_index_memory_bytes", .gauge, "Memory of the redo log's index.", \.log?.indexMemory)
        let checkpoints = mounts.flatMap { mount in
            (mount.statistics?.log?.checkpoints ?? [:]).sorted { $0.key < $1.key }.map { reason, count in
                (Self.labels(mount) + [("reason", reason)], Double(count))
            }
        }
        add("log_checkpoints_total", .counter, "Checkpoints of the redo log.", checkpoints)
    }

    private static func labels(_ mount: MountStatus) -> Labels { [("mountpoint", mount.mountpoint)] }

    /// Adds a metric from the statistics.
    /// - Parameter figure: nil for a mount without it.
    private mutating func add<Number: BinaryInteger>(
        _ name: String, _ kind: Kind, _ help: String, _ figure: KeyPath<Statistics, Number?>, factor: Double = 1
    ) {
        add(name, kind, help, factor: factor) { $0.statistics?[keyPath: figure] }
    }

    /// Adds a metric.
    /// - Parameter value: returns nil for a mount without the metric.
    private mutating func add<Number: BinaryInteger>(
        _ name: String, _ kind: Kind, _ help: String, factor: Double = 1, value: (MountStatus) -> Number?
    ) {
        let samples = mounts.compactMap { mount in value(mount).map { (Self.labels(mount), Double($0) * factor) } }
        add(name, kind, help, samples)
    }

    /// Adds a metric, unless all mounts lack it.
    private mutating func add(_ name: String, _ kind: Kind, _ help: String, _ samples: [(Labels, Double)]) {
        if samples.isEmpty { return }
        text += "# HELP vaultfs_\(name) \(help)\n# TYPE vaultfs_\(name) \(kind.rawValue)\n"
        for (labels, value) in samples {
            let pairs = labels.map { "\($0.name)=\"\(Self.escaped($0.value))\"" }.joined(separator: ",")
            text += "vaultfs_\(name)\(pairs.isEmpty ? "" : "{\(pairs)}") \(Self.number(value))\n"
        }
    }

    /// Returns the number as text, without a decimal point for an integer.
    private static func number(_ value: Double) -> String {
        Int64(exactly: value).map { "\($0)" } ?? "\(value)"
    }

    /// Returns a label's value, with backslash, quote and line feed escaped.
    private static func escaped(_ value: String) -> String {
        value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\n", with: "\\n")
    }
}
