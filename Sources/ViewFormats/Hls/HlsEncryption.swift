/// How bytes of a segment are encrypted: AES-128-CBC, PKCS#7.
package struct HlsEncryption: Equatable, Sendable {
    package var key: HlsKeyName
    package var vector: InitialVector

    func means(_ other: HlsEncryption) -> Bool {
        vector == other.vector && key.means(other.key)
    }
}
