{{- define "basalt.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- /* The name of all objects: that of the release, with the chart's name unless the release has it. */ -}}
{{- define "basalt.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "basalt.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "basalt.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "basalt.selector" -}}
app.kubernetes.io/name: {{ include "basalt.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "basalt.labels" -}}
{{ include "basalt.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "basalt.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- /* The headless service, which gives each pod a name, and the names' domain. */ -}}
{{- define "basalt.nodes" -}}
{{ include "basalt.fullname" . }}-nodes
{{- end -}}
{{- define "basalt.domain" -}}
{{ include "basalt.nodes" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- define "basalt.secret" -}}
{{ .Values.auth.existingSecret | default (include "basalt.fullname" .) }}
{{- end -}}

{{- define "basalt.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "basalt.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "basalt.pods" -}}
{{- if eq .Values.mode "cluster" -}}
{{ mul .Values.cluster.primaries (add 1 .Values.cluster.replicas) }}
{{- else if eq .Values.mode "replication" -}}
{{ .Values.replication.pods }}
{{- else -}}
1
{{- end -}}
{{- end -}}

{{- /* Arguments of valkey-cli with TLS. */ -}}
{{- define "basalt.cli" -}}
valkey-cli{{ if .Values.tls.enabled }} --tls --cacert /tls/{{ .Values.tls.caFile }} --cert /tls/{{ .Values.tls.certFile }} --key /tls/{{ .Values.tls.keyFile }}{{ end }}
{{- end -}}

{{- /* For scripts: how to ask the Sentinel of a pod by its number, and the numbers of the other pods. */ -}}
{{- define "basalt.sentinels" -}}
sentinel() {
  host={{ include "basalt.fullname" . }}-$1.{{ include "basalt.domain" . }}
  shift
  env -u REDISCLI_AUTH timeout 3 {{ include "basalt.cli" . }} -h "$host" -p 26379 SENTINEL "$@" 2>/dev/null
}
others=$(seq 0 {{ sub .Values.replication.pods 1 }} | grep -vx "${HOSTNAME##*-}")
{{- end -}}

{{- /* The password as a variable of this name. */ -}}
{{- define "basalt.password" -}}
- name: {{ .name }}
  valueFrom:
    secretKeyRef: {name: {{ include "basalt.secret" .root }}, key: {{ .root.Values.auth.secretKey }}}
{{- end -}}

{{- /* What cannot work, said before anything is made. */ -}}
{{- define "basalt.refuse" -}}
{{- if and .Values.tls.enabled (not .Values.tls.existingSecret) -}}
{{- fail "tls.enabled needs tls.existingSecret" -}}
{{- end -}}
{{- if and (eq .Values.mode "replication") (gt (int .Values.replication.sentinel.quorum) (int .Values.replication.pods)) -}}
{{- fail "replication.sentinel.quorum is more than replication.pods" -}}
{{- end -}}
{{- $stop := add .Values.shutdownTimeoutSeconds (ternary .Values.replication.handoverSeconds 5 (eq .Values.mode "replication")) -}}
{{- if lt (int .Values.terminationGracePeriodSeconds) (int (add $stop 30)) -}}
{{- fail (printf "terminationGracePeriodSeconds is less than %d: preStop, shutdownTimeoutSeconds and 30 s for a snapshot" (add $stop 30)) -}}
{{- end -}}
{{- end -}}
