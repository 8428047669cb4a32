/// Bytes of a path, a URI or a command's message as a message may show them: at most `limit`, invalid UTF-8 repaired,
/// control characters as `?`, so that hostile ones cannot drive a terminal or add a line to a log.
///
/// Not by way of `FilePath.shown`: FilePath makes one slash of two, which a URI has.
package func shown(_ bytes: some Collection<UInt8>, limit: Int = 256) -> String {
    let scalars = String(decoding: bytes.prefix(limit), as: UTF8.self).unicodeScalars
    let text = String(
        String.UnicodeScalarView(scalars.map { $0.properties.generalCategory == .control ? "?" : $0 }))
    return bytes.count > limit ? text + "…" : text
}
