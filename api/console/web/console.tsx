/** The console of organizers: where it begins, and which page belongs to which address. */

import "./common/tokens.css";
import "./common/base.css";
import "./common/ui/ui.css";
import "./shell.css";
// Styles are one file: a part of the program that is loaded later brings none.
import "./pages/activity.css";
import "./pages/settings.css";
import "./pages/stages.css";
import "./pages/usage.css";
import "./pages/watermark.css";

import { type FunctionComponent, render } from "preact";
import { useEffect } from "preact/hooks";

import { isSignedOut, mode } from "./calls";
import { onDemand } from "./common/on-demand";
import { match, place, startRouter } from "./common/router";
import { ErrorState, Loading } from "./common/ui/states";
import { startWords } from "./common/words";
import { AlbumSection } from "./pages/album";
import { type Section, sections } from "./pages/album-frame";
import { AlbumsPage } from "./pages/albums";
import { SignInPage } from "./pages/sign-in";
import { loadSession, may, session, sessionFailure } from "./session";
import { NotFound, Shell } from "./shell";
import { loaders } from "./text";

const organization = () => import("./pages/organization");
const AccountPage = onDemand(async () => (await organization()).AccountPage);
const AccountsPage = onDemand(async () => (await organization()).AccountsPage);
const ActivityPage = onDemand(async () => (await organization()).ActivityPage);
const AllErasuresPage = onDemand(async () => (await organization()).AllErasuresPage);
const KeysPage = onDemand(async () => (await organization()).KeysPage);
const OperatorPage = onDemand(async () => (await organization()).OperatorPage);
const UsagePage = onDemand(async () => (await organization()).UsagePage);
const WebhookPage = onDemand(async () => (await organization()).WebhookPage);
const WebhooksPage = onDemand(async () => (await organization()).WebhooksPage);
const WelcomePage = onDemand(async () => (await organization()).WelcomePage);

function App() {
  const { path } = place.value;
  const welcome = match("/welcome/:token", path);
  const isWelcome = welcome !== null;
  // Not asked for as long as a link of an invitation is shown: whoever leaves it without an account may have a session.
  useEffect(() => {
    if (!isWelcome && session.value === undefined && !sessionFailure.value) void loadSession();
  }, [isWelcome]);
  if (welcome) return <WelcomePage token={welcome["token"] ?? ""} />;
  if (sessionFailure.value) {
    return (
      <main class="alone">
        <ErrorState failure={sessionFailure.value} onRetry={() => void loadSession()} />
      </main>
    );
  }
  if (session.value === undefined) {
    return (
      <main class="alone">
        <Loading />
      </main>
    );
  }
  if (session.value === null) return <SignInPage />;
  // A page belongs to one mode, so another mode restarts it.
  return (
    <>
      <Shell key={mode.value}>{findPage(path)}</Shell>
      {isSignedOut.value && <SignInPage again />}
    </>
  );
}

function findPage(path: string) {
  const album = match("/albums/:album", path) ?? match("/albums/:album/:section", path);
  if (album) {
    const section = (album["section"] ?? "overview") as Section;
    const isThere = sections.includes(section) && (section !== "overview" || !album["section"]);
    return isThere ? <AlbumSection albumId={album["album"] ?? ""} section={section} /> : <NotFound />;
  }
  const photo = match("/albums/:album/photos/:photo", path);
  if (photo) return <AlbumSection albumId={photo["album"] ?? ""} section="photos" photoId={photo["photo"] ?? ""} />;
  const webhook = match("/webhooks/:webhook", path);
  if (webhook && may.organize.value) return <WebhookPage webhookId={webhook["webhook"] ?? ""} />;
  return findPlainPage(path);
}

function findPlainPage(path: string) {
  const pages: Record<string, [isPermitted: boolean, Shown: FunctionComponent]> = {
    "/": [true, AlbumsPage],
    "/albums": [true, AlbumsPage],
    "/account": [true, AccountPage],
    "/activity": [true, ActivityPage],
    "/usage": [may.organize.value, UsagePage],
    "/erasures": [may.organize.value, AllErasuresPage],
    "/webhooks": [may.organize.value, WebhooksPage],
    "/keys": [may.own.value, KeysPage],
    "/accounts": [may.own.value, AccountsPage],
    "/operator": [may.operate.value, OperatorPage],
  };
  const [isPermitted, Shown] = pages[path] ?? [false, NotFound];
  return isPermitted ? <Shown /> : <NotFound />;
}

async function start(): Promise<void> {
  startRouter("/console");
  await Promise.all([startWords(loaders), match("/welcome/:token", place.value.path) ? null : loadSession()]);
  const app = document.getElementById("app");
  if (app) render(<App />, app);
}

void start();
