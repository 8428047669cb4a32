internal import LinuxSystem

/// A line of a playlist, as messages name it.
struct HlsPlace: CustomStringConvertible {
    var path: [UInt8]
    var line: Int

    var description: String { line == 0 ? shown(path) : "\(shown(path)):\(line)" }
}
