// The partner API as it was given to us, and nothing that came later. Partners have built on it: a change of what follows
// breaks them, so neither this file nor `partner.mjs` changes with the service.
import { oc } from '@orpc/contract'

const post = (path) => oc.route({ method: 'POST', path })

export const contract = {
  albums: {
    create: post('/albums/create'),
    list: post('/albums/list'),
  },
  photos: {
    photo: {
      signed: post('/photos/photo/signed'),
      success: post('/photos/photo/success'),
    },
    search: {
      faceSigned: post('/photos/search/face/signed'),
      faceList: post('/photos/search/face/list'),
      textList: post('/photos/search/text/list'),
    },
  },
}
