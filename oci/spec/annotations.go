package spec

// The annotations of config.json, for people and tools that read bundles. Runtimes take annotations for
// configuration, so nothing that a pod or an image says becomes one: labels of an image that did were
// CVE-2026-53488.
const (
	annotationKind         = "io.podd.kind" // "container" or "infra"
	annotationContainer    = "io.podd.container.name"
	annotationPodName      = "io.podd.pod.name"
	annotationPodNamespace = "io.podd.pod.namespace"
	annotationPodUID       = "io.podd.pod.uid"
)

func (b *builder) annotations() error { return b.annotate("container") }

func (b *builder) annotate(kind string) error {
	pod := b.in.Pod.GetMetadata()
	list := map[string]string{
		annotationKind:         kind,
		annotationContainer:    b.in.Config.GetMetadata().GetName(),
		annotationPodName:      pod.GetName(),
		annotationPodNamespace: pod.GetNamespace(),
		annotationPodUID:       pod.GetUid(),
	}
	for key, value := range list {
		if value == "" {
			delete(list, key)
		}
		if err := text(key, value); err != nil {
			return err
		}
	}
	b.spec.Annotations = list
	return nil
}
